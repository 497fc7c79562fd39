"""The rows of the source, as Spark and as Arrow know them.

Invariants:

1. Columns, their order and their types are those of Spark's Kafka source.
2. A schema that a user brings names some of them, with these types, in any order, and in any case
   (Spark's JVM refuses another case than theirs where ``spark.sql.caseSensitive`` is true: only
   it knows that).
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from offsetlog.errors import InvalidRequestError
from offsetlog.values import did_you_mean

HEADER_TYPE = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
}
MAY_BE_NULL = frozenset(("key", "value", "headers"))
"""Spark does not look for nulls where a schema says that there are none."""


def source_schema(include_headers: bool) -> StructType:
    fields = [StructField(name, kind) for name, kind in COLUMNS.items()]
    if include_headers:
        fields.append(StructField("headers", HEADER_TYPE))
    return StructType(fields)


_BY_LOWER = {name.lower(): name for name in (*COLUMNS, "headers")}


def column_of(name: str) -> str:
    """The column that a name in any case means."""
    return _BY_LOWER.get(name.lower(), name)


def chosen_columns(schema: StructType) -> tuple[str, ...]:
    """The columns that a schema of a user's own names."""
    known = {**COLUMNS, "headers": HEADER_TYPE}
    for field in schema.fields:
        column = column_of(field.name)
        kind = known.get(column)
        if kind is None:
            raise InvalidRequestError(
                f"The schema has a column {field.name!r}, which a log does not have.",
                did_you_mean(field.name, known),
            )
        if not _same(field.dataType, kind):
            raise InvalidRequestError(
                f"The schema says that {field.name} is {field.dataType.simpleString()}; "
                f"it is {kind.simpleString()}.",
                "Leave .schema(...) out, or name some of the source's columns with their types.",
            )
        if not field.nullable and column in MAY_BE_NULL:
            raise InvalidRequestError(
                f"The schema says that {field.name} is never null; of some records it is.",
                "Leave NOT NULL out.",
            )
    names = tuple(column_of(field.name) for field in schema.fields)
    if not names:
        raise InvalidRequestError(
            "The schema names no column.", f"Name some of {', '.join(known)}."
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidRequestError(
            f"The schema names {', '.join(twice)} more than once.", "Name each column once."
        )
    return names


def _same(given: DataType, kind: DataType) -> bool:
    """Equal but for what may be null."""
    return given.simpleString() == kind.simpleString()
