"""Pages of records, compared with all records of the topic in Python."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

import offsetlog
from offsetlog.client.log import Log
from offsetlog.engine.append import record_batch
from offsetlog.engine.env import REAL, Limits
from offsetlog.errors import InvalidRequestError, UnknownTopicError
from offsetlog.format.parquet import ParquetReader
from offsetlog.page import records
from offsetlog.page.records import (
    Query,
    RecordPage,
    Sizes,
    cut,
    read_page,
    to_document,
    to_documents,
)
from offsetlog.storage.open import open_store
from offsetlog.values import Record

BASE = 1_700_000_000_000


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[offsetlog.Log]:
    """A topic whose records lie in entries and in segments, with times that go up and down."""
    chance = random.Random(7)
    with offsetlog.open(str(tmp_path_factory.mktemp("records") / "log")) as log:
        log.create_topic("t", partitions=4, config={"retention.ms": -1})
        number = 0
        for batch in range(60):
            with log.producer() as producer:
                for _ in range(chance.choice((1, 3, 20))):
                    producer.send(
                        "t",
                        f"value {number}".encode() + b"x" * (40_000 if batch % 20 == 5 else 3),
                        key=f"k{number % 7}".encode() if number % 5 else None,
                        headers=[("n", str(number).encode())],
                        partition=chance.choice((0, 0, 1, 2)),  # 3 stays empty
                        timestamp=BASE + 10 * number + chance.randint(-200, 200),
                    )
                    number += 1
            if batch == 30:
                log.maintain("t", grace_ms=0)
        log.topic("t").delete_records({1: 5})
        yield log


@pytest.fixture(scope="module")
def everything(log: offsetlog.Log) -> dict[int, list[Record]]:
    with log.consumer(auto_offset_reset="earliest", topics=["t"]) as consumer:
        out: dict[int, list[Record]] = {p: [] for p in range(4)}
        while got := consumer.poll():
            for record in got:
                out[record.partition].append(record)
    assert sum(map(len, out.values())) > 300 and out[1][0].offset == 5 and not out[3]
    return out


def page(log: offsetlog.Log, query: Query) -> RecordPage:
    return read_page(log.open_topic("t"), query, log.env)


def merged(partitions: dict[int, list[Record]], backwards: bool) -> list[Record]:
    """The records one after another, each time that of the partition whose next one is the newest
    (or oldest)."""
    left = {p: list(reversed(rows)) if backwards else list(rows) for p, rows in partitions.items()}
    out = []
    while any(left.values()):
        sign = -1 if backwards else 1
        number = min((rows[0].timestamp * sign, p) for p, rows in left.items() if rows)[1]
        out.append(left[number].pop(0))
    return out


def all_pages(log: offsetlog.Log, query: Query) -> list[Record]:
    """Page after page, by the cursor."""
    out: list[Record] = []
    for _ in range(2000):
        got = page(log, query)
        out += got.records
        more = bool(got.cursor) if query.backwards else (not got.complete or bool(got.records))
        if not more:
            return out
        query = query._replace(
            offset=None, time_ms=None, cursor=got.cursor, newest_first=query.backwards
        )
    raise AssertionError("it does not end")


@pytest.mark.parametrize("limit", [1, 7, 500])
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("partitions", [None, (0,), (1, 2), (3,)])
def test_all_pages_are_all_records(log, everything, limit, backwards, partitions) -> None:
    chosen = {p: rows for p, rows in everything.items() if partitions is None or p in partitions}
    query = Query(partitions, newest_first=backwards, limit=limit)
    assert all_pages(log, query) == merged(chosen, backwards)


def test_without_more_it_is_the_newest(log, everything) -> None:
    assert page(log, Query(limit=50)).records == tuple(merged(everything, True)[:50])


@pytest.mark.parametrize("offset", [0, 3, 50, 10_000])
def test_from_an_offset(log, everything, offset) -> None:
    after = {p: [r for r in rows if r.offset >= offset] for p, rows in everything.items()}
    up_to = {p: [r for r in rows if r.offset <= offset] for p, rows in everything.items()}
    assert all_pages(log, Query(offset=offset)) == merged(after, False)
    assert all_pages(log, Query(offset=offset, newest_first=True)) == merged(up_to, True)


def test_from_a_time(log, everything) -> None:
    for time in (BASE - 10**6, BASE + 1500, BASE + 10**9):
        since = {}
        for p, rows in everything.items():
            first = next((i for i, r in enumerate(rows) if r.timestamp >= time), len(rows))
            since[p] = rows[first:]
        assert all_pages(log, Query(time_ms=time)) == merged(since, False)


def by_partition(rows: list[Record]) -> dict[int, list[Record]]:
    return {p: [r for r in rows if r.partition == p] for p in range(4)}


@pytest.mark.parametrize("backwards", [False, True])
def test_by_key_and_content(log, everything, backwards) -> None:
    """Each match once, and in the order of each partition; times that go down within a partition
    may put one partition's matches before another's."""

    def expected(matches):
        step = -1 if backwards else 1
        return {p: [r for r in rows if matches(r)][::step] for p, rows in everything.items()}

    def found(query):
        return by_partition(all_pages(log, query))

    base = Query(newest_first=backwards, limit=9)
    by_key = expected(lambda r: r.key == b"k3")
    assert found(base._replace(key=b"k3")) == found(base._replace(contains=b"k3")) == by_key
    assert found(base._replace(contains=b"ue 11")) == expected(lambda r: b"ue 11" in r.value)
    both = base._replace(key=b"k3", contains=b"7")
    assert found(both) == expected(lambda r: r.key == b"k3" and b"7" in r.value)
    assert all_pages(log, base._replace(key=b"nobody")) == []


def test_a_search_ends_early_and_goes_on(log, everything, monkeypatch) -> None:
    monkeypatch.setattr(records, "LOCAL_READS", 0)
    monkeypatch.setattr(records, "SEARCHED_FILES", 2)
    query = Query(key=b"k3", newest_first=True, limit=500)
    first = page(log, query)
    assert not first.complete and first.cursor
    assert by_partition(all_pages(log, query)) == {
        p: [r for r in rows if r.key == b"k3"][::-1] for p, rows in everything.items()
    }


def test_each_page_comes_further_however_slow_it_is(log, everything, monkeypatch) -> None:
    """A page that ended before another partition was read began at the same place again."""
    monkeypatch.setattr(records, "MAX_SECONDS", -1.0)
    for backwards in (False, True):
        got = by_partition(all_pages(log, Query(newest_first=backwards, limit=500)))
        step = -1 if backwards else 1
        assert got == {p: rows[::step] for p, rows in everything.items()}


@pytest.mark.parametrize(
    ("name", "value"),
    [("LOCAL_READS", 0), ("MAX_SCANNED", 30), ("MAX_HELD_BYTES", 5000), ("MAX_SECONDS", -1.0)],
)
def test_each_budget_ends_a_page(log, everything, monkeypatch, name, value) -> None:
    monkeypatch.setattr(records, name, value)
    got = page(log, Query(limit=500))
    assert not got.complete and got.cursor and len(got.records) < 500


def test_oldest_first_goes_on_with_what_comes(log, tmp_path) -> None:
    with offsetlog.open(str(tmp_path / "log")) as mine:
        mine.create_topic("t", partitions=1)
        first = page(mine, Query(newest_first=False))
        assert first.records == () and first.cursor == {0: 0} == first.ends
        mine.topic("t").alter(partitions=2)
        with mine.producer() as producer:
            producer.send("t", b"a", partition=1)
        again = page(mine, Query(cursor=first.cursor, newest_first=False))
        assert [r.value for r in again.records] == [b"a"]
        assert again.cursor == {0: 0, 1: 1}


def test_what_is_not_there(log) -> None:
    with pytest.raises(UnknownTopicError, match="no partition 4"):
        page(log, Query(partitions=(4,)))
    with pytest.raises(UnknownTopicError, match="no partition 9"):
        page(log, Query(cursor={9: 0}))
    with pytest.raises(InvalidRequestError, match="1 to 500"):
        page(log, Query(limit=501))
    with pytest.raises(UnknownTopicError):
        read_page(log.open_topic("gone"), Query(), log.env)


def test_many_partitions_are_not_read_together(log, monkeypatch) -> None:
    monkeypatch.setattr(records, "MAX_MERGED", 3)
    with pytest.raises(InvalidRequestError, match="Choose one"):
        page(log, Query())
    assert page(log, Query(partitions=(0,))).records
    monkeypatch.setattr(records, "MAX_TIMES", 1)
    with pytest.raises(InvalidRequestError, match="Choose one"):
        page(log, Query(time_ms=BASE, partitions=(0, 1)))


def test_long_values_are_cut_between_characters() -> None:
    text = "aé€😀".encode()
    for limit in range(1, len(text) + 2):
        short = cut(text, limit)
        assert text.startswith(short) and short.decode() is not None
        assert len(text) <= limit or limit - 3 <= len(short) <= limit
    assert cut(b"\x80" * 10, 4) == b"\x80" * 4


def test_a_document_says_how_long_it_is() -> None:
    record = Record("t", 1, 2, b"k" * 3, b"\xff" * 5000, [("h", b"x" * 9000)] * 100, 5, 1)
    sizes = Sizes(3, 5000)
    document = to_document(record, 1024, sizes)
    assert document["key"] == "kkk" and not document["key_is_cut"]
    assert document["value"] is None and document["value_is_cut"]
    assert document["value_bytes"] == 5000 and len(document["value_base64"]) == 1368
    assert len(document["headers"]) == 2 and document["headers_left_out"] == 98
    assert all(len(header["value"]) <= 1024 for header in document["headers"])
    many = RecordPage((record,) * 400, {}, {}, 0, True, (sizes,) * 400)
    assert sum(len(str(one)) for one in to_documents(many)) < 3 * records.PAGE_BYTES


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[offsetlog.Log]:
    """A topic where compaction and an erasure left gaps, and a stretch of which nothing is left."""
    with offsetlog.open(str(tmp_path_factory.mktemp("compacted") / "log")) as log:
        config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0}
        log.create_topic("t", partitions=4, config=config)
        for batch in range(12):
            with log.producer() as producer:
                for n in range(25):
                    key = b"k%d" % (n % 5 if batch < 10 else n)
                    time = BASE + 1000 * batch + n
                    producer.send("t", b"%d" % batch, key=key, partition=n % 3, timestamp=time)
        log.maintain("t", grace_ms=0)
        log.topic("t").erase(keys=[b"k7"])
        yield log


@pytest.mark.parametrize("limit", [1, 7, 500])
@pytest.mark.parametrize("backwards", [False, True])
def test_where_offsets_have_gaps(compacted, limit, backwards) -> None:
    with compacted.consumer(auto_offset_reset="earliest", topics=["t"]) as consumer:
        rows = []
        while got := consumer.poll():
            rows += got
    ends = compacted.topic("t").end_offsets()
    assert 10 < len(rows) < sum(ends.values()) / 3 and b"k7" not in {r.key for r in rows}
    step = -1 if backwards else 1
    expected = {p: rows_of[::step] for p, rows_of in by_partition(rows).items()}
    query = Query(newest_first=backwards, limit=limit)
    assert by_partition(all_pages(compacted, query)) == expected
    found = by_partition(all_pages(compacted, query._replace(key=b"k3")))
    assert found == {p: [r for r in mine if r.key == b"k3"] for p, mine in expected.items()}
    assert all_pages(compacted, query._replace(key=b"k7")) == []


# --- files that unfold to more than they say ---------------------------------------------------

MIB = 1024 * 1024
LIMITS = Limits(inline_bytes=-1, row_group_records=1)


class Decoded:
    """Bytes that are decoded from here on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        for name in ("read", "read_row_group"):
            monkeypatch.setattr(ParquetReader, name, self._noting(getattr(ParquetReader, name)))

    def _noting(self, read):
        def noted(*given):
            table = read(*given)
            self.bytes += table.nbytes
            return table

        return noted


@pytest.fixture
def lying(tmp_path, monkeypatch) -> Iterator[offsetlog.Log]:
    """A topic whose entries say that each record has a byte. It has three megabytes of zeros, in a
    row group of its own; six of them lie in each file."""
    with (
        monkeypatch.context() as patch,
        Log(open_store(str(tmp_path / "log")), REAL._replace(limits=LIMITS)) as log,
    ):
        config = {"max.message.bytes": 64 * MIB, "compression.type": "zstd", "retention.ms": -1}
        log.create_topic("t", partitions=1, config=config)
        log.create_topic("entries", partitions=1, config=config)
        patch.setattr(record_batch, "row_bytes", lambda table: np.ones(len(table), np.int64))
        for n in range(4):
            zeros = [bytes(3 * MIB)] * 6
            keys = [b"k%d" % (6 * n + i) for i in range(6)]
            table = pa.table({"key": pa.array(keys, pa.binary()), "value": zeros})
            with log.producer() as producer:
                producer.send_arrow("t", table)
        yield log


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("search", [{}, {"key": b"k17"}, {"contains": b"\x00" * 100}])
def test_a_page_decodes_no_more_than_it_may(lying, monkeypatch, backwards, search) -> None:
    """What entries say of their files was believed: four files of ten kilobytes took gigabytes."""
    monkeypatch.setattr(records, "MAX_DECODED", 16 * MIB)
    decoded = Decoded(monkeypatch)
    query, out, pages = Query(newest_first=backwards, **search), [], 0
    while True:
        before = decoded.bytes
        got = page(lying, query)
        assert decoded.bytes - before <= records.MAX_DECODED
        pages += 1
        out += [(r.offset, len(r.value)) for r in got.records]
        assert all(sizes.value == 3 * MIB for sizes in got.sizes)
        if not got.cursor or (got.complete and not got.records):
            break
        query = query._replace(cursor=got.cursor)
    expected = [17] if "key" in search else list(range(24))[:: -1 if backwards else 1]
    # What is kept of a value is what may be shown.
    assert out == [(offset, records.WHOLE_BYTES) for offset in expected] and pages > 4


@pytest.mark.parametrize("backwards", [False, True])
def test_a_record_that_is_too_large_is_refused_with_the_way_out(
    lying, monkeypatch, backwards
) -> None:
    monkeypatch.setattr(records, "MAX_DECODED", 2 * MIB)
    decoded, at = Decoded(monkeypatch), 23 if backwards else 0
    with pytest.raises(
        InvalidRequestError, match=f"more than 2 MiB .* t --partition 0 --from {at} "
    ):
        page(lying, Query(newest_first=backwards))
    assert decoded.bytes < 2 * MIB


def test_looking_for_a_time_is_within_the_same_budget(lying, monkeypatch) -> None:
    monkeypatch.setattr(records, "MAX_DECODED", 7)
    now = lying.env.now_ms()
    with pytest.raises(InvalidRequestError, match="find a time in t-0 "):
        page(lying, Query(time_ms=now - 60_000))
    assert page(lying, Query(time_ms=now + 60_000)).records == ()


def test_rows_of_an_entry_are_within_the_same_budget(lying, monkeypatch, tmp_path) -> None:
    """They are decoded once, so another program looks."""
    with Log(open_store(str(tmp_path / "log"))) as writer, writer.producer() as producer:
        for _ in range(8):
            producer.send("entries", bytes(3 * MIB)).result()
    with Log(open_store(str(tmp_path / "log"))) as log:
        monkeypatch.setattr(records, "MAX_DECODED", 16 * MIB)
        decoded = Decoded(monkeypatch)
        got = read_page(log.open_topic("entries"), Query(), log.env)
        assert 0 < len(got.records) < 8 and not got.complete
        assert decoded.bytes <= records.MAX_DECODED
