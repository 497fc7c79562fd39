"""PySpark's classes and functions, as each line has them.

| | since |
|---|---|
| ``latestOffset(start, limit)``, read limits, ``SupportsTriggerAvailableNow`` | 4.2 |
| ``to_arrow_schema(timezone=)`` | 4.2 |
| ``DataSourceStreamArrowWriter``, pushed filters | 4.1 |
| filters that are kept apart, ``pushLimit`` | none of these lines: a later one |
"""

from __future__ import annotations

import ast
import inspect
import json
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceReader, DataSourceStreamWriter
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

__all__ = [
    "FILTERS_KEPT_APART",
    "PREFETCHING_READER",
    "STARTS_ARE_GIVEN",
    "ReadAllAvailable",
    "StreamArrowWriter",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "progress_offset",
    "read_limit",
]

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
except ImportError:

    class StreamArrowWriter(DataSourceArrowWriter, DataSourceStreamWriter):  # type: ignore
        """A worker of Spark 4.0 asks only whether a writer is the first of these."""


FILTERS_KEPT_APART = hasattr(DataSourceReader, "pushLimit")
"""Whether Spark keeps what the filters of one scan left apart from other scans of the same frame.
Up to 4.3 it does not: a query, or the other side of a union, would read too few rows without a
word. It is mended in the Spark to come, together with the pushing of limits."""

try:
    from pyspark.sql.streaming import datasource as limits
    from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow
except ImportError:
    limits = None  # type: ignore[assignment]

    class ReadAllAvailable:  # type: ignore[no-redef]
        """Before 4.2 Spark does not say whether a batch may be limited, so it may."""

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Before 4.2 ``availableNow`` is a single batch, and no source hears of it."""


try:
    from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper

    PREFETCHING_READER: Any = (
        _SimpleStreamReaderWrapper if hasattr(_SimpleStreamReaderWrapper, "getCache") else None
    )
    """PySpark's own reader whose rows the driver hands over; None where there is none. It is not
    public."""
except ImportError:
    PREFETCHING_READER = None


STARTS_ARE_GIVEN = limits is not None
"""Whether Spark says where a batch starts when it asks where it ends."""


def read_limit(records: int | None, size: int | None, least_records: int | None) -> Any:
    """The limit of a stream, in Spark's words. Which one it is tells us later whether limits
    hold: trigger ``once`` has none."""
    if records is not None:
        return limits.ReadMaxRows(records)
    if size is not None:
        return limits.ReadMaxBytes(size)
    if least_records is not None:
        return limits.ReadMinRows(least_records)
    return ReadAllAvailable()


def progress_offset(text: str) -> Any:
    """An offset as a query's progress has it: JSON, but on Spark Connect before 4.2, which writes
    it as Python does."""
    try:
        return json.loads(text)
    except ValueError:
        if STARTS_ARE_GIVEN:
            raise
    try:
        return ast.literal_eval(text)
    except SyntaxError as error:
        raise ValueError(f"no offset: {error.msg}") from None


_UTC = (
    {"timezone": "UTC"}
    if "timezone" in inspect.signature(to_arrow_schema).parameters
    else {"timestamp_utc": True}
)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark takes rows of ``schema`` in."""
    return to_arrow_schema(schema, **_UTC)
