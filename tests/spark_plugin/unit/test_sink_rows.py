"""What the sink takes of Spark's rows, and what it refuses; no Spark runs here."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from offsetlog.errors import InvalidRequestError
from offsetlog.format import record_schema as rows
from pyspark_offsetlog.schema import HEADER_TYPE
from pyspark_offsetlog.sink import from_spark as sink_rows
from pyspark_offsetlog.sink.from_spark import (
    SinkColumns,
    as_rows,
    by_topic,
    in_pieces,
    sink_columns,
)
from pyspark_offsetlog.sink.task import message_limit

TEXT = StringType()
NOW = 1_700_000_000_000


def schema(**columns) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def shape(**places: int) -> SinkColumns:
    return SinkColumns(**{name: places.get(name, -1) for name in SinkColumns._fields})


def rows_of(kind: pa.DataType | None = None, append_time: bool = False, **columns) -> tuple:
    """``as_rows`` of columns given by their names."""
    arrays = [c if isinstance(c, pa.Array) else pa.array(c) for c in columns.values()]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
    places = shape(**{name: i for i, name in enumerate(columns)})
    return as_rows(batch, places, NOW, append_time)


# --- the schema ----------------------------------------------------------------------------


def test_all_columns_in_any_order_with_others_between_them():
    found = sink_columns(
        schema(
            extra=LongType(),
            timestamp=TimestampType(),
            partition=IntegerType(),
            topic=TEXT,
            headers=HEADER_TYPE,
            key=BinaryType(),
            VALUE=LongType(),
            value=VarcharType(10),
        ),
        topic_option=False,
    )
    assert found == SinkColumns(value=7, key=5, headers=4, topic=3, partition=2, timestamp=1)


def test_the_option_wins_over_the_column_whatever_that_holds():
    assert sink_columns(schema(value=TEXT, topic=LongType()), topic_option=True).topic == -1


@pytest.mark.parametrize(
    ("column", "kind", "told"),
    [
        ("value", IntegerType(), "Column 'value' is int; it must be binary or string."),
        ("value", NullType(), "Column 'value' is void; it must be binary or string."),
        ("key", LongType(), "Column 'key' is bigint; it must be binary or string."),
        ("topic", BinaryType(), "Column 'topic' is binary; it must be string."),
        ("partition", TEXT, "Column 'partition' is string; it must be int."),
        ("partition", LongType(), "Column 'partition' is bigint; it must be int."),
        ("partition", ShortType(), "Column 'partition' is smallint; it must be int."),
        ("timestamp", DateType(), "Column 'timestamp' is date; it must be timestamp."),
        ("timestamp", LongType(), "Column 'timestamp' is bigint; it must be timestamp."),
        (
            "timestamp",
            TimestampNTZType(),
            "Column 'timestamp' is timestamp_ntz; it must be timestamp.",
        ),
        (
            "headers",
            TEXT,
            "Column 'headers' is string; it must be array<struct<key:string,value:binary>>.",
        ),
    ],
)
def test_a_column_of_another_type(column, kind, told):
    columns = {"value": TEXT, "topic": TEXT, column: kind}
    with pytest.raises(InvalidRequestError) as error:
        sink_columns(schema(**columns), topic_option=False)
    assert error.value.message == told
    assert "Cast it" in error.value.hint


def test_what_has_parts_is_not_to_be_cast():
    for kind in (StructType().add("a", LongType()), MapType(TEXT, TEXT), ArrayType(TEXT)):
        with pytest.raises(InvalidRequestError) as error:
            sink_columns(schema(value=kind), topic_option=True)
        assert error.value.hint == "A cast would lose its names: to_json(value) AS value."


def test_columns_that_are_not_there():
    with pytest.raises(InvalidRequestError, match="no column 'value'.*They have: key, other"):
        sink_columns(schema(key=TEXT, other=TEXT), topic_option=True)
    with pytest.raises(InvalidRequestError, match="by case: rename 'VALUE' to 'value'"):
        sink_columns(schema(VALUE=TEXT), topic_option=True)
    with pytest.raises(InvalidRequestError, match="neither the option topic nor a column 'topic'"):
        sink_columns(schema(value=TEXT), topic_option=False)
    with pytest.raises(InvalidRequestError, match="by case: rename 'Topic' to 'topic'"):
        sink_columns(schema(value=TEXT, Topic=TEXT), topic_option=False)
    twice = StructType([StructField("value", TEXT), StructField("value", TEXT)])
    with pytest.raises(InvalidRequestError, match="2 columns 'value'"):
        sink_columns(twice, topic_option=True)


# --- the rows ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()], ids=str
)
def test_keys_and_values_of_every_arrow_type(kind):
    column = pa.array(["ä", None, ""] if "string" in str(kind) else [b"\xc3\xa4", None, b""], kind)
    out, named = rows_of(key=column, value=column)
    assert out.schema == rows.ROWS and named is None
    assert (
        out.column("key").to_pylist()
        == out.column("value").to_pylist()
        == ["ä".encode(), None, b""]
    )
    assert out.column("headers").null_count == 3


@pytest.mark.parametrize(
    ("unit", "given", "expected"),
    [
        ("us", [1_500, -1_500, None, 0], [1, -2, NOW, 0]),
        ("ms", [1_500, -1_500, None, 0], [1_500, -1_500, NOW, 0]),
        ("ns", [1_500_000, -1, None, 0], [1, -1, NOW, 0]),
        ("s", [2, -2, None, 0], [2_000, -2_000, NOW, 0]),
    ],
)
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_timestamps_of_any_unit_downwards_to_milliseconds(unit, given, expected, zone):
    column = pa.array(given, pa.timestamp(unit, tz=zone))
    out, _ = rows_of(value=["x"] * 4, timestamp=column)
    assert out.column("timestamp").cast(pa.int64()).to_pylist() == expected
    stamped, _ = rows_of(value=["x"] * 4, timestamp=column, append_time=True)
    assert stamped.column("timestamp").cast(pa.int64()).to_pylist() == [NOW] * 4


def test_rows_without_a_timestamp_get_the_time_of_writing():
    nothing = pa.nulls(2, pa.timestamp("us", "UTC"))
    for columns in ({"value": ["a", "b"]}, {"value": ["a", "b"], "timestamp": nothing}):
        out, _ = rows_of(**columns)
        assert out.column("timestamp").cast(pa.int64()).to_pylist() == [NOW, NOW]


SPARKS_HEADERS = pa.list_(
    pa.field(
        "element",
        pa.struct([pa.field("key", pa.string()), pa.field("value", pa.large_binary())]),
        nullable=False,
    )
)


def test_headers_and_that_none_at_all_are_a_null():
    given = [
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        [],
        None,
        [{"key": "", "value": b""}],
    ]
    out, _ = rows_of(value=["x"] * 4, headers=pa.array(given, SPARKS_HEADERS))
    assert out.column("headers").type == rows.HEADERS
    assert out.column("headers").to_pylist() == [given[0], None, None, given[3]]


def test_headers_of_a_slice():
    given = pa.array([[{"key": str(i), "value": b"v"}] * i for i in range(6)], SPARKS_HEADERS)
    batch = pa.RecordBatch.from_arrays([pa.array(["x"] * 6), given], names=["value", "headers"])
    out, _ = as_rows(batch.slice(2, 3), shape(value=0, headers=1), NOW, False)
    assert out.column("headers").to_pylist() == given.slice(2, 3).to_pylist()


@pytest.mark.parametrize("bad", [[None], [{"key": None, "value": b"1"}]], ids=["header", "key"])
def test_a_header_that_is_null_or_has_no_key(bad):
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([None, bad, [{"key": "h", "value": None}]], kind)
    with pytest.raises(InvalidRequestError, match="A header is null, or its key is"):
        rows_of(value=["x"] * 3, headers=headers)


def not_text(count: int = 1) -> pa.Array:
    """What Spark makes of CAST(X'FFFE' AS STRING)."""
    good = pa.array([b"\xff\xfe"] * count, pa.binary())
    return pa.Array.from_buffers(pa.string(), count, good.buffers())


@pytest.mark.parametrize("at", [0, 1])
def test_a_header_whose_key_is_not_text(at):
    """Arrow would take it, and no Python consumer could read the partition again."""
    names = pa.concat_arrays([pa.array(["ä"] * at, pa.string()), not_text()])
    pairs = pa.StructArray.from_arrays([names, pa.array([b"v"] * (at + 1))], ["key", "value"])
    headers = pa.ListArray.from_arrays(pa.array([0, at, at + 1], pa.int32()), pairs)
    with pytest.raises(InvalidRequestError, match="The key of a header is not UTF-8"):
        rows_of(value=["x"] * 2, headers=headers)


def test_a_topic_whose_name_is_not_text():
    names = pa.concat_arrays([pa.array(["a"]), not_text()])
    batch = pa.RecordBatch.from_arrays([names, pa.array(range(2))], names=["topic", "value"])
    assert _topics(batch) == {"a": [0], "\ufffd\ufffd": [1]}


def test_partitions_that_rows_name():
    _, named = rows_of(value=["x"] * 3, partition=pa.array([3, None, 0], pa.int32()))
    assert named.tolist() == [3, -1, 0] and named.dtype == np.int32
    _, named = rows_of(value=["x"] * 2, partition=pa.nulls(2, pa.int32()))
    assert named is None
    with pytest.raises(InvalidRequestError, match="A row names the partition -1"):
        rows_of(value=["x"] * 2, partition=pa.array([0, -1], pa.int32()))


def _topics(batch: pa.RecordBatch) -> dict[str, list[int]]:
    found = by_topic(batch, shape(topic=0, value=1))
    return {name: some.column(1).to_pylist() for name, some in found}


def test_rows_by_topic_keep_their_order():
    names = pa.array(["b", "a", "b", "c", "a", "b"])
    batch = pa.RecordBatch.from_arrays([names, pa.array(range(6))], names=["topic", "value"])
    assert _topics(batch) == {"b": [0, 2, 5], "a": [1, 4], "c": [3]}
    assert _topics(batch.slice(1, 1)) == {"a": [1]}
    assert _topics(batch.slice(2, 3)) == {"b": [2], "c": [3], "a": [4]}


def test_a_topic_that_is_null():
    names = pa.array(["a", None, "a"])
    batch = pa.RecordBatch.from_arrays([names, pa.array(range(3))], names=["topic", "value"])
    with pytest.raises(InvalidRequestError, match="1 of 3 rows have a null in column 'topic'"):
        _topics(batch)


def test_huge_batches_are_taken_in_pieces(monkeypatch):
    monkeypatch.setattr(sink_rows, "MAX_BYTES", 1_000)
    values = [b"%03d" % i * 30 for i in range(100)]
    whole = pa.RecordBatch.from_arrays([pa.array(values, pa.large_binary())], names=["value"])
    pieces = list(in_pieces(iter([whole.slice(0, 0), whole, whole.slice(0, 3)])))
    assert max(piece.num_rows for piece in pieces) < 12
    found = [value for piece in pieces for value in piece.column(0).to_pylist()]
    assert found == values + values[:3]


def test_small_batches_are_joined_and_large_ones_are_not(monkeypatch):
    monkeypatch.setattr(sink_rows, "JOINED_BYTES", 3_000)
    monkeypatch.setattr(sink_rows, "JOINED_ROWS", 40)
    monkeypatch.setattr(sink_rows, "MAX_BYTES", 5_000)
    sizes = [(10, 100), (10, 100), (1, 4_000), (3, 10), (60, 10), (7, 500), (2, 9_000), (5, 10)]
    values = [[b"%02d" % n * (size // 2)] * n for n, size in sizes]
    batches = [pa.RecordBatch.from_arrays([pa.array(v)], names=["value"]) for v in values]
    pieces = list(in_pieces(iter(batches)))
    assert [value for p in pieces for value in p.column(0).to_pylist()] == sum(values, [])
    assert [p.num_rows for p in pieces] == [20, 1, 63, 7, 1, 1, 5]


def test_what_all_tasks_may_send_is_bounded():
    assert message_limit(0) == message_limit(15) == 256 * 1024
    for tasks, most in ((1_000, 21 << 20), (10_000, 31 << 20), (100_000, 40 << 20)):
        assert sum(map(message_limit, range(tasks))) < most
