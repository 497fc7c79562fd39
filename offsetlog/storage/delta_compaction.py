"""Few files in place of many, as one commit of Delta's log that is our own.

1. The library lets two compactions of the same files land, and then their rows are there twice.
   Ours lands at exactly the version after one at which all that it replaces was live, or not.
2. What was written for it is offered again, after an append that came in between, as long as all
   that it replaces is live still: it must get past those who append all the time.
3. Rows are copied as they are; what is removed stays on the disk for those who read it.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import CorruptLogError
from ..format import fact_rows, strict_json
from .ports import Committed, Store, Unknown

COMPACT_TO = 4 * 1024 * 1024
UNANSWERED = 5
READERS = 8


class Compaction(NamedTuple):
    """Written already, and to be named by a version."""

    replaced: frozenset[str]
    files: int
    text: bytes

    def fits(self, live: Iterable[str]) -> bool:
        """Whether all that it replaces is there."""
        return self.replaced <= frozenset(live)


def named(table: Any) -> dict[str, int]:
    """The data files of a version, and their sizes."""
    added = pa.table(table.get_add_actions()).select(["path", "size_bytes"]).to_pylist()
    return {str(one["path"]): int(one["size_bytes"]) for one in added}


def bins_of(live: Mapping[str, int]) -> list[list[str]]:
    """Small files that become one each."""
    bins: list[list[str]] = [[]]
    room = COMPACT_TO
    for path, size in sorted(live.items()):
        if size >= COMPACT_TO:
            continue
        if size > room:
            bins.append([])
            room = COMPACT_TO
        bins[-1].append(path)
        room -= size
    return [paths for paths in bins if len(paths) > 1]


def write(store: Store, inside: Callable[[str], str], bins: list[list[str]]) -> Compaction | None:
    """Write the files that take the place of others; None when one of those is gone, since
    somebody else compacted it. ``inside`` gives the name of a path, or refuses it."""
    now_ms = int(time.time() * 1000)
    what = {"timestamp": now_ms, "operation": "OPTIMIZE", "operationParameters": {}}
    actions: list[dict[str, Any]] = [{"commitInfo": what}]
    for paths in bins:
        rows = _rows(store, [inside(path) for path in paths])
        if rows is None:
            return None
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd")
        data = sink.getvalue().to_pybytes()
        name = f"compacted-{uuid.uuid4().hex}.parquet"
        store.put(inside(name), data)
        about = {"partitionValues": {}, "dataChange": False}
        stats = json.dumps({"numRecords": rows.num_rows})
        new = {"path": name, "size": len(data), "modificationTime": now_ms, "stats": stats}
        actions.append({"add": {**new, **about}})
        actions += [
            {"remove": {"path": path, "deletionTimestamp": now_ms, "dataChange": False}}
            for path in paths
        ]
    text = b"".join(strict_json.dumps(action) + b"\n" for action in actions)
    return Compaction(frozenset(path for paths in bins for path in paths), len(bins), text)


def land(store: Store, compaction: Compaction, log_name: str) -> bool:
    """Whether it is the version of that name now, as far as anybody answered."""
    offer = store.offer(compaction.text, log_name)
    try:
        result = offer.put(log_name)
        for _ in range(UNANSWERED):
            if not isinstance(result, Unknown):
                break
            result = offer.put(log_name)
        return isinstance(result, Committed)
    finally:
        offer.close()


def _rows(store: Store, names: list[str]) -> pa.Table | None:
    """All rows of some data files; None when one is not there any more."""
    with ThreadPoolExecutor(READERS) as pool:
        found = list(pool.map(lambda name: store.get(name), names))
    tables = []
    for name, data in zip(names, found, strict=True):
        if data is None:
            return None
        try:
            file = pq.ParquetFile(pa.BufferReader(data))
            fact_rows.check_size(file.metadata, name)
            tables.append(file.read().select(fact_rows.SCHEMA.names).cast(fact_rows.SCHEMA))
        except (pa.ArrowException, KeyError, OSError, ValueError) as error:
            raise CorruptLogError(f"{name} does not read: {str(error)[:200]}.") from None
    return pa.concat_tables(tables)
