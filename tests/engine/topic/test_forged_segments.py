"""Segments of which anything may be wrong, under sums that are right: reading and ``verify`` name
the file, and neither gives fewer records nor fails in another library's words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from offsetlog.client.log import Log
from offsetlog.engine.env import REAL, Limits
from offsetlog.errors import CorruptLogError
from offsetlog.format import entries, segments
from offsetlog.format import record_schema as rows
from offsetlog.storage import open_store
from tests.format.bombs import MIB, forget_most, most_memory
from tests.format.forged_segments import Parts, by_python, extremes, forged_from

COUNT = 20
MISPLACED = "the offsets of row group 0 are out of their place"
Change = Callable[[pa.Table], pa.Table]


def opened(place: Path, inline: int = 64) -> Log:
    limits = Limits(inline_bytes=inline)
    return Log(open_store(str(place / "log")), REAL._replace(limits=limits))


def erased_with(log: Log, monkeypatch: pytest.MonkeyPatch, encode: Callable[..., Any]) -> None:
    """A topic whose segment lost a record, and was written by ``encode`` then."""
    log.create_topic("t", partitions=1)
    with log.producer(linger_ms=60_000) as producer:
        for number in range(COUNT):
            producer.send("t", b"v" * 50, key=b"k%d" % number, headers=[("h", b"1")])
    with monkeypatch.context() as patch:
        patch.setattr(segments, "encode", encode)
        log.topic("t").erase(keys=[b"k7"])


def with_table(change: Change) -> Callable[..., Any]:
    usual = segments.encode

    def encode(table: pa.Table, *rest: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(segments, "_is_dense", lambda offsets: False)
            return usual(change(table), *rest)

    return encode


def numbers(name: str, of: Callable[[list[Any]], list[Any]]) -> Change:
    def change(table: pa.Table) -> pa.Table:
        at, kind = table.schema.names.index(name), table.schema.field(name).type
        told = of(table.column(at).cast(pa.int64()).to_pylist())
        return table.set_column(at, name, pa.array(told, pa.int64()).cast(kind))

    return change


def with_null(some: list[Any]) -> list[Any]:
    return [*some[:3], None, *some[4:]]


def swapped(some: list[Any]) -> list[Any]:
    return [*some[:3], some[4], some[3], *some[5:]]


def with_header(pairs: pa.Array) -> Change:
    def change(table: pa.Table) -> pa.Table:
        ends = [0] * table.num_rows + [len(pairs)]
        lists = pa.ListArray.from_arrays(ends, pairs)
        return table.set_column(table.schema.names.index("headers"), "headers", lists)

    return change


def strange_name() -> pa.Array:
    return pa.StructArray.from_arrays(
        [pa.array([b"\xff"]).view(pa.string()), pa.array([b"x"])], ["key", "value"]
    )


CHANGES: dict[str, tuple[Change, str]] = {
    "all too high": (numbers("offset", lambda some: [n + 1000 for n in some]), MISPLACED),
    "all the same": (numbers("offset", lambda some: [7] * len(some)), MISPLACED),
    "descending": (numbers("offset", lambda some: some[::-1]), MISPLACED),
    "a null offset": (numbers("offset", with_null), "offsets that are null"),
    "below the base": (numbers("offset", lambda some: [-1, *some[1:]]), MISPLACED),
    "swapped": (numbers("offset", swapped), MISPLACED),
    "twice": (numbers("offset", lambda some: [some[1], *some[1:]]), MISPLACED),
    "past the end": (numbers("offset", lambda some: [*some[:-1], 10**6]), MISPLACED),
    "a null time": (numbers("timestamp", with_null), "timestamps that are null"),
    "no times": (lambda table: table.drop_columns(["timestamp"]), "no column 'timestamp'"),
    "no offsets": (lambda table: table.drop_columns(["offset"]), "no column 'offset'"),
    "no values": (lambda table: table.drop_columns(["value"]), "no column 'value'"),
    "a null header": (with_header(pa.nulls(1, rows.HEADERS.value_type)), "a header that is null"),
    "a name that is no text": (with_header(strange_name()), "a header whose name is not UTF-8"),
}


def polled(log: Log, start: int = 0) -> list[int]:
    with log.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([("t", 0)])
        consumer.seek(("t", 0), start)
        out: list[int] = []
        while some := consumer.poll(timeout=0, max_records=5):
            out += [record.offset for record in some]
        return out


def is_refused(log: Log, why: str) -> None:
    for start in (0, 9):
        with pytest.raises(CorruptLogError, match=why):
            polled(log, start)
    reports = {report.topic: report for report in log.verify()}
    assert any(why in fault for fault in reports["t"].faults), reports["t"].faults
    assert all(fault.startswith("t/partition=0/") for fault in reports["t"].faults)


def test_what_an_erasure_leaves_is_read(tmp_path, monkeypatch):
    with opened(tmp_path) as log:
        erased_with(log, monkeypatch, segments.encode)
        assert polled(log) == [n for n in range(COUNT) if n != 7]
        assert not [fault for report in log.verify() for fault in report.faults]


@pytest.mark.parametrize("what", CHANGES)
def test_columns_that_are_not_as_they_must_be(tmp_path, monkeypatch, what):
    change, why = CHANGES[what]
    with opened(tmp_path) as log:
        erased_with(log, monkeypatch, with_table(change))
        is_refused(log, why)


@pytest.mark.parametrize("what", ["a null time", "no times", "no values", "a name that is no text"])
def test_columns_of_an_entry(tmp_path, monkeypatch, what):
    change, why = CHANGES[what]
    usual = entries.write_sealed

    def write(schema: pa.Schema, table: pa.Table | None, *rest: Any) -> bytes:
        if table is not None:
            table = change(pa.table(table))
        return usual(schema if table is None else table.schema, table, *rest)

    with opened(tmp_path, 1 << 16) as log:
        log.create_topic("t", partitions=1)
        monkeypatch.setattr(entries, "write_sealed", write)
        with log.producer(linger_ms=60_000) as producer:
            for number in range(COUNT):
                producer.send("t", b"%d" % number, headers=[("h", b"1")])
        monkeypatch.undo()
    with opened(tmp_path) as log:
        with pytest.raises(CorruptLogError, match=why):
            polled(log)
        reports = {report.topic: report for report in log.verify()}
        assert any(why in fault for fault in reports["t"].faults), reports["t"].faults


def test_a_footer_that_is_nested_without_end_hides_no_other_fault(tmp_path, monkeypatch):
    def encode(table: pa.Table, *rest: Any) -> Any:
        deep = b"\x19" * 20_000 + b"\x03\0"
        parts = Parts(forged_from(plain(table, *rest)))
        data = parts.together("deep", lambda raw: raw[:-1] + b"\x19" + deep)
        return segments.EncodedSegment(memoryview(data.data), data.foot, data.sum)

    plain = segments.encode
    with opened(tmp_path) as log:
        erased_with(log, monkeypatch, encode)
        log.create_topic("u", partitions=1)
        with log.producer() as producer:
            producer.send("u", b"x" * 500).result()
        [other] = (tmp_path / "log" / "u" / "partition=0").glob("*.parquet")
        other.unlink()
        is_refused(log, "nested too deeply")
        reports = {report.topic: report for report in log.verify()}
        assert any("is missing" in fault for fault in reports["u"].faults)


def test_a_footer_that_says_later_times_than_there_are_or_earlier(tmp_path, monkeypatch):
    """By the greatest time of a row group a lookup passes over it."""
    plain = segments.encode

    def encode(table: pa.Table, *rest: Any) -> Any:
        parts = Parts(forged_from(plain(table, *rest)))
        parts.tell("timestamp", (5).to_bytes(8, "little"))
        data = parts.together("times")
        return segments.EncodedSegment(memoryview(data.data), data.foot, data.sum)

    with opened(tmp_path) as log:
        erased_with(log, monkeypatch, encode)
        reports = {report.topic: report for report in log.verify()}
        assert any("later times than its footer says" in one for one in reports["t"].faults)


def test_no_extreme_is_read_or_is_an_error_of_another_library():
    count = 0
    for forged in extremes():
        forget_most()
        before = most_memory()
        assert by_python(forged) is None, forged.what
        assert most_memory() - before < 320 * MIB, forged.what
        count += 1
    assert count > 90
