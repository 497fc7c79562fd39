"""Few files in place of many, as one commit of Delta's log that is our own.

1. Two compactions of the same files that both land would leave their rows there twice.
   Ours lands at exactly the version after one at which all that it replaces was live, or not.
2. What was written for it is offered again, after an append that came in between, as long as all
   that it replaces is live still: it must get past those who append all the time.
3. Rows are copied as they are; what is removed stays on the disk for those who read it.
4. A file gets no longer than ``FILE_ROWS`` and ``COMPACT_TO``, far below what a reader takes, and
   one that is as long is left alone.
5. A file is written again only together with a fair share of its own rows, so that a row is
   written again a number of times that grows with the logarithm of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from offsetlog.errors import CorruptLogError
from offsetlog.format import delta_log, facts_arrow
from offsetlog.format.delta_log import Action, DataFile
from offsetlog.format.parquet import ParquetReader, first_line, unfolded_bytes
from offsetlog.storage.delta.log import Surroundings
from offsetlog.storage.store import Committed, Store, Unknown

COMPACT_TO = 4 * 1024 * 1024
MOST_UNFOLDED = 256 * 1024 * 1024
"""Of one file that is written again."""
FEW_ROWS = 4096
"""A file of fewer rows costs nothing to write again."""
SHARE = 4
"""A longer one is left alone until the shorter ones together have a fourth of its rows."""
UNANSWERED = 5


class Compaction(NamedTuple):
    """Written already, and to be named by a version."""

    replaced: frozenset[str]
    files: int
    text: bytes

    def fits(self, live: Iterable[str]) -> bool:
        """Whether all that it replaces is there."""
        return self.replaced <= frozenset(live)


def bins_of(live: Mapping[str, DataFile]) -> list[list[str]]:
    """Small files that become one each."""
    known = [(f.rows, path, f.size) for path, f in live.items() if f.rows is not None]
    bins: list[list[tuple[int, str]]] = [[]]
    size = rows = 0
    for count, path, length in sorted(known):
        if length >= COMPACT_TO or count >= facts_arrow.FILE_ROWS:
            continue
        if size + length > COMPACT_TO or rows + count > facts_arrow.FILE_ROWS:
            bins.append([])
            size = rows = 0
        bins[-1].append((count, path))
        size, rows = size + length, rows + count
    fair = [_fair(together) for together in bins]
    return [[path for _, path in together] for together in fair if len(together) > 1]


def _fair(together: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Without the longest ones, as long as the others are too few to write them again."""
    rows = sum(count for count, _ in together)
    while together and together[-1][0] > max(FEW_ROWS, SHARE * (rows - together[-1][0])):
        rows -= together[-1][0]
        together = together[:-1]
    return together


def counted(
    store: Store, inside: Callable[[str], str], live: Mapping[str, DataFile]
) -> dict[str, DataFile]:
    """The same, with the rows of small files counted whose writer did not say how many."""
    out = dict(live)
    for path, file in live.items():
        if file.rows is not None or file.size >= COMPACT_TO:
            continue
        name = inside(path)
        data = store.get(name, 0, COMPACT_TO)
        if data is not None:
            out[path] = DataFile(file.size, facts_arrow.open_file(data, name).num_rows)
    return out


def write(
    store: Store,
    inside: Callable[[str], str],
    bins: list[list[str]],
    adds: Mapping[str, Action],
    surroundings: Surroundings,
) -> Compaction | None:
    """Write the files that take the place of others; None when one of those is gone, since
    somebody else compacted it. ``inside`` gives the name of a path, or refuses it."""
    actions: list[Action] = []
    now_ms = surroundings.now_ms()
    for paths in bins:
        rows = _rows(store, {inside(path): adds[path] for path in paths}, surroundings)
        if rows is None:
            return None
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd")
        data = sink.getvalue().to_pybytes()
        name = f"compacted-{surroundings.new_id()}.parquet"
        store.put(inside(name), data)
        actions.append(delta_log.add_file(name, data, rows.num_rows, now_ms, False))
        actions += [
            {"remove": {"path": path, "deletionTimestamp": now_ms, "dataChange": False}}
            for path in paths
        ]
    text = delta_log.encode_version("OPTIMIZE", now_ms, actions)
    return Compaction(frozenset(path for paths in bins for path in paths), len(bins), text)


def land(store: Store, text: bytes, log_name: str) -> bool:
    """Whether it is the version of that name now, as far as anybody answered."""
    offer = store.offer(text, log_name)
    try:
        result = offer.put(log_name)
        for _ in range(UNANSWERED):
            if not isinstance(result, Unknown) or result.waited:
                break
            result = offer.put(log_name)
        return isinstance(result, Committed)
    finally:
        offer.close()


def _rows(store: Store, adds: Mapping[str, Action], surroundings: Surroundings) -> pa.Table | None:
    """All rows of some data files; None when one is not there any more. Columns that somebody
    added stay what they are; of rows that are there twice, as two compactions beside each other
    leave them, one is taken."""
    with surroundings.readers() as pool:
        files = list(pool.map(lambda name: store.get(name, 0, COMPACT_TO + 1), adds))
    tables = []
    for (name, add), data in zip(adds.items(), files, strict=True):
        if data is None:
            return None
        delta_log.check_file(add, data, name)
        tables.append(_as_they_are(facts_arrow.open_file(data, name)))
    try:
        return _once(pa.concat_tables(tables, promote_options="default"))
    except MemoryError:
        raise  # It is an Arrow error too, and says nothing of the file.
    except pa.ArrowException as error:
        raise CorruptLogError(
            f"{next(iter(adds))} and others have columns that do not fit: {str(error)[:200]}."
        ) from None


def _once(rows: pa.Table) -> pa.Table:
    """Without rows whose facts are equal to those of another."""
    places = rows.select(["version", "place"])
    if (
        places.group_by(["version", "place"], use_threads=False).aggregate([]).num_rows
        == rows.num_rows
    ):
        return rows
    numbered = rows.select(facts_arrow.SCHEMA.names).append_column(
        "number", pa.array(range(rows.num_rows), pa.int64())
    )
    first = numbered.group_by(facts_arrow.SCHEMA.names, use_threads=False).aggregate(
        [("number", "min")]
    )
    return rows.take(first.column("number_min").combine_chunks().sort())


def _as_they_are(file: ParquetReader) -> pa.Table:
    read = file.read(file.schema.names, MOST_UNFOLDED)
    if unfolded_bytes(read) > MOST_UNFOLDED:
        raise CorruptLogError(f"{file.name} would unfold to more than {MOST_UNFOLDED} bytes.")
    try:
        rows = read.select(facts_arrow.SCHEMA.names).cast(facts_arrow.SCHEMA)
        for extra in read.schema:
            if extra.name not in facts_arrow.SCHEMA.names:
                column = read.column(extra.name)
                if pa.types.is_dictionary(extra.type):
                    column = column.cast(extra.type.value_type)
                rows = rows.append_column(extra.with_type(column.type), column)
        return rows
    except MemoryError:
        raise  # It is an Arrow error too, and says nothing of the file.
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise CorruptLogError(f"{file.name} does not read: {first_line(error)}.") from None
