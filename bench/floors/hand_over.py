"""The least that a Python source or sink of Spark can cost: rows are handed over, and that is all.

The source makes one batch a task and hands it over again and again; the sink drops what it gets.
Whatever a source or a sink in Python does beyond that, it cannot be faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "timestamp timestamp, timestampType int"
)
BATCH = 65_536
VALUE_BYTES, KEY_BYTES = 100, 8


class HandOver(DataSource):
    """``rows`` in ``partitions`` tasks, or a sink of anything."""

    @classmethod
    def name(cls) -> str:
        return "handover"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:
        return _Reader(int(self.options["rows"]), int(self.options["partitions"]))

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return _Writer()


class _Reader(DataSourceReader):
    def __init__(self, rows: int, partitions: int) -> None:
        self._rows = rows
        self._partitions = partitions

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rest = self._rows // self._partitions
        ready = _batch(min(BATCH, rest), partition.value)
        while rest:
            yield ready.slice(0, rest)
            rest -= min(rest, ready.num_rows)


def _batch(count: int, partition: int) -> pa.RecordBatch:
    import os

    import numpy as np
    import pyarrow as pa

    def binary(width: int) -> pa.Array:
        ends = pa.py_buffer(np.arange(0, width * (count + 1), width, dtype=np.int32))
        return pa.Array.from_buffers(
            pa.binary(), count, [None, ends, pa.py_buffer(os.urandom(width * count))]
        )

    offsets = pa.array(np.arange(count))
    return pa.RecordBatch.from_arrays(
        [
            binary(KEY_BYTES),
            binary(VALUE_BYTES),
            pa.array(np.full(count, "orders", object), pa.string()),
            pa.array(np.full(count, partition, np.int32)),
            offsets,
            offsets.cast(pa.timestamp("us", tz="UTC")),
            pa.array(np.zeros(count, np.int32)),
        ],
        names=[part.split()[0] for part in SCHEMA.split(", ")],
    )


class _Writer(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: Any) -> None:
        pass

    def abort(self, messages: Any) -> None:
        pass
