"""``.option("table", ...)``: what is known *about* a log, as rows.

``positions`` and ``lag`` of all groups, the ``topics`` with their partitions, and ``offsets``:
the facts of the offsets table as the client reads them, wherever that table lies.

Invariants:

1. A query shows what is there when it runs, so a view of such a table is always live.
2. A table is read by one task, with a few requests; groups are looked at side by side.
3. A root that is not there is an error, never an empty table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from offsetlog.client.log import Log
from offsetlog.engine import facts_arrow as fact_rows
from offsetlog.errors import InvalidRequestError, OffsetLogError
from offsetlog.values import did_you_mean
from pyspark_offsetlog.options.check import table_options
from pyspark_offsetlog.runtime.open_logs import open_log, with_root_id
from pyspark_offsetlog.runtime.pickling import PickledWithReason
from pyspark_offsetlog.runtime.user_errors import one_line_errors, one_line_errors_iterator

OPTION = "table"
SIDE_BY_SIDE = 8
LAG = pa.schema(
    [
        pa.field("group", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("committed", pa.int64()),
        pa.field("log_start", pa.int64()),
        pa.field("log_end", pa.int64()),
        pa.field("lag_records", pa.int64()),
        pa.field("lag_bytes", pa.int64()),
        pa.field("lag_seconds", pa.float64()),
        pa.field("expired", pa.int64()),
        pa.field("out_of_range", pa.bool_()),
        pa.field("member", pa.string()),
        pa.field("metadata", pa.string()),
    ]
)
"""The fields of ``group.lag.Lag``, in its order, after the group's name."""
TOPICS = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("beginning_offset", pa.int64()),
        pa.field("end_offset", pa.int64()),
        pa.field("records", pa.int64()),
        pa.field("bytes", pa.int64()),
    ]
)


def offsets_rows(log: Log, group: str | None) -> pa.Table:
    facts = log.offsets_table.port.read(-1).facts
    chosen = facts if group is None else [fact for fact in facts if fact.group == group]
    return fact_rows.to_arrow(sorted(chosen, key=lambda fact: (fact.version, fact.place)))


def positions_rows(log: Log, group: str | None) -> pa.Table:
    state = log.offsets_table.look()
    if group is not None:
        state = state._replace(groups={n: g for n, g in state.groups.items() if n == group})
    return fact_rows.positions_to_arrow(state)


def lag_rows(log: Log, group: str | None) -> pa.Table:
    names = list(log.groups())
    chosen = names if group is None else [name for name in names if name == group]
    with ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="offsetlog-lag") as pool:
        rows = [
            (name, *line)
            for name, lines in zip(chosen, pool.map(lambda n: _lines(log, n), chosen), strict=True)
            for line in lines
        ]
    return _table(rows, LAG)


def _lines(log: Log, group: str) -> Sequence[tuple[Any, ...]]:
    try:
        return log.group(group).describe().partitions
    except OffsetLogError:
        if group in log.groups():
            raise
        return ()  # It was deleted meanwhile.


def topics_rows(log: Log, group: str | None) -> pa.Table:
    rows = [
        (topic.name, p.partition, p.beginning_offset, p.end_offset,
         p.end_offset - p.beginning_offset, p.bytes)
        for topic in log.topics().infos
        for p in topic.partitions
    ]  # fmt: skip
    return _table(rows, TOPICS)


def _table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


class _Table(NamedTuple):
    schema: pa.Schema
    rows: Callable[[Log, str | None], pa.Table]


TABLES: Mapping[str, _Table] = {
    "offsets": _Table(fact_rows.SCHEMA, offsets_rows),
    "positions": _Table(fact_rows.POSITIONS, positions_rows),
    "lag": _Table(LAG, lag_rows),
    "topics": _Table(TOPICS, topics_rows),
}


def read_table(log: Log, table: str, group: str | None = None) -> pa.Table:
    """The rows of a table as they are now."""
    log.root.require()  # A root that is not there is an error
    return TABLES[table].rows(log, group)


# --- as a data source ---------------------------------------------------------------------------


def is_table(options: Mapping[str, str]) -> bool:
    return OPTION in options


def table_schema(options: Mapping[str, str]) -> StructType:
    return from_arrow_schema(TABLES[table_options(options).table].schema)


class TableReader(PickledWithReason, DataSourceReader):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = table_options(options)
        self._columns = [field.name for field in schema.fields]
        columns = from_arrow_schema(TABLES[self._options.table].schema)
        for field in schema.fields:
            if field.name not in columns.names:
                raise InvalidRequestError(
                    f"The table {self._options.table} has no column {field.name!r}.",
                    did_you_mean(field.name, columns.names),
                )
            kind = columns[field.name].dataType
            if field.dataType.simpleString() != kind.simpleString():
                raise InvalidRequestError(
                    f"The schema says that {field.name} is {field.dataType.simpleString()}; "
                    f"it is {kind.simpleString()}.",
                    "Leave .schema(...) out.",
                )

    @one_line_errors
    def partitions(self) -> Sequence[InputPartition]:
        # A root that is not there is said here: it is one line for the user.
        return [InputPartition(with_root_id(self._options.place).root_id)]

    @one_line_errors_iterator
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        log = open_log(self._options.place._replace(root_id=partition.value))
        log.root.check()
        rows = read_table(log, self._options.table, self._options.group)
        yield from rows.select(self._columns).to_batches(max_chunksize=16_384)
