"""The offsets table's facts, a file at a time; and a table that begins with those of another.

Invariants:

1. Versions, facts and their order stay what they are; the table's id and the log that it belongs
   to are new. So the new table begins at a version above 0, with a checkpoint and no log before it.
2. Memory is bounded by a file, however many facts there are.
3. All is durable before it is named, and the table is there when its version is.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from offsetlog.core import strict_json
from offsetlog.errors import CorruptLogError
from offsetlog.format import delta_log, facts_arrow
from offsetlog.format.delta_log import LAST_CHECKPOINT, LOG, Action, DeltaState
from offsetlog.format.parquet import first_line
from offsetlog.storage.store import Store


def read_rows(store: Store, state: DeltaState, inside: Callable[[str], str]) -> Iterator[pa.Table]:
    """The rows of a version, file by file; an error where one is gone."""
    for path, add in state.adds.items():
        name = inside(path)
        data = store.get(name, 0, facts_arrow.MOST_FILE_BYTES + 1)
        if data is None:
            raise CorruptLogError(f"{name} is gone.", "Restore the table from a backup.")
        delta_log.check_file(add, data, name)
        file = facts_arrow.open_file(data, name)
        try:
            columns = facts_arrow.SCHEMA.names
            for batch in file.batches(columns, facts_arrow.FILE_ROWS, facts_arrow.MOST_UNFOLDED):
                rows = pa.Table.from_batches([batch])
                yield rows.select(columns).cast(facts_arrow.SCHEMA)
        except MemoryError:
            raise  # It is an Arrow error too, and says nothing of the file.
        except (pa.ArrowException, KeyError, ValueError) as error:
            raise CorruptLogError(f"{name} does not read: {first_line(error)}.") from None


def begin(
    store: Store,
    prefix: str,
    version: int,
    tables: Iterable[pa.Table],
    settings: Mapping[str, str],
    note_tags: Callable[[str], Mapping[str, str]],
    now_ms: int,
) -> None:
    """Make a table of these rows as of ``version``, where nobody else writes."""
    table_id = str(uuid.uuid4())
    text = delta_log.new_table(facts_arrow.SCHEMA, table_id, settings, now_ms)
    state = DeltaState(version - 1)
    state.apply(delta_log.actions_of(text, prefix), prefix)
    adds: list[Action] = []
    for rows in _files(tables):
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd")
        data = sink.getvalue().to_pybytes()
        path = f"copied-{uuid.uuid4().hex}.parquet"
        store.put(f"{prefix}{path}", data)
        adds.append(delta_log.add_file(path, data, rows.num_rows, now_ms, True))
    state.version -= 1
    state.apply(adds, prefix)
    log = f"{prefix}{LOG}/"
    checkpoint, rows_of_it = state.checkpoint(now_ms)
    store.put(f"{log}{version:020d}.checkpoint.parquet", checkpoint)
    actions = [{"protocol": state.protocol}, {"metaData": state.metadata}, *adds]
    store.put(f"{log}{version:020d}.json", delta_log.encode_version("CLONE", now_ms, actions))
    note = {
        "version": version,
        "size": rows_of_it,
        "sizeInBytes": len(checkpoint),
        "numOfAddFiles": len(adds),
        "tags": dict(note_tags(table_id)),
    }
    store.put(f"{log}{LAST_CHECKPOINT}", strict_json.dumps(note))


def _files(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables that are long enough for a file, and not too long."""
    waiting: list[pa.Table] = []
    count = 0
    for table in tables:
        waiting.append(table)
        count += table.num_rows
        if count >= facts_arrow.FILE_ROWS:
            yield from _cut(waiting)
            waiting, count = [], 0
    if count:
        yield from _cut(waiting)


def _cut(tables: list[pa.Table]) -> Iterator[pa.Table]:
    rows = pa.concat_tables(tables)
    most = facts_arrow.FILE_ROWS
    return (rows.slice(low, most) for low in range(0, rows.num_rows, most))
