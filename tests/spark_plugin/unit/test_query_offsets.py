"""The JSON of a query's offsets, and how a batch is shared out and cut into tasks."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetlog.errors import InvalidRequestError
from offsetlog.values import TopicPartition
from pyspark_offsetlog.source.next_batch import share_out
from pyspark_offsetlog.source.offsets import (
    OffsetRange,
    QueryOffset,
    begin_of,
    parse,
    split_ranges,
)

T = TopicPartition
positions = st.dictionaries(
    st.builds(T, st.sampled_from(["a", "b.c", "D_1"]), st.integers(0, 12)),
    st.integers(0, 2**62),
    max_size=6,
)


@given(positions, st.none() | st.tuples(st.just("g"), st.integers(0, 99)), positions)
def test_json_and_back(at: dict, group: tuple | None, moved: dict) -> None:
    offset = QueryOffset(at, *(group or (None, None)), moved)
    text = json.dumps(offset.to_json())
    assert parse(json.loads(text)) == offset
    turned = QueryOffset(dict(reversed(at.items())), *(group or (None, None)), moved)
    assert json.dumps(turned.to_json()) == text


def test_the_shape_of_an_offset() -> None:
    offset = QueryOffset(
        {T("orders", 1): 89, T("orders", 0): 142}, "billing", 3, {T("orders", 0): 7}
    )
    assert json.dumps(offset.to_json()) == (
        '{"orders": {"0": 142, "1": 89}, "@group": "billing", "@reset": 3, '
        '"@from": {"orders": {"0": 7}}}'
    )
    assert QueryOffset({T("orders", 0): 1}).to_json() == {"orders": {"0": 1}}


@pytest.mark.parametrize(
    "raw",
    [
        [],
        "orders",
        None,
        {"orders": 3},
        {"orders": {"x": 3}},
        {"orders": {"-1": 3}},
        {"orders": {"00": 3}},
        {"orders": {"9" * 5000: 3}},
        {"orders": {"0": 1}, "@epoch": 2},
        {"orders": {"0": 1}, "@group": "g", "@reset": 2**70},
        {"orders": {"0": -1}},
        {"orders": {"0": 3.7}},
        {"orders": {"0": True}},
        {"orders": {"0": "3"}},
        {"orders": {"0": 1}, "@group": 5},
        {"orders": {"0": 1}, "@group": "g", "@reset": "2"},
        {"orders": {"0": 1}, "@from": {"orders": 2}},
    ],
)
def test_what_is_no_offset_of_ours_is_said_to_be_none(raw: object) -> None:
    with pytest.raises(InvalidRequestError, match="checkpoint holds an offset") as failed:
        parse(raw)
    assert "checkpointLocation" in failed.value.hint


def test_a_batch_begins_where_the_last_ended_or_where_its_end_says() -> None:
    start = QueryOffset({T("a", 0): 5, T("a", 1): 6}, "g", 1)
    end = QueryOffset({T("a", 0): 9, T("a", 1): 9, T("b", 0): 4}, "g", 2, {T("a", 0): 1})
    assert begin_of(start, end, T("a", 0)) == 1
    assert begin_of(start, end, T("a", 1)) == 6
    assert begin_of(start, end, T("b", 0)) is None


sizes = st.dictionaries(
    st.builds(T, st.just("t"), st.integers(0, 20)), st.integers(0, 2**40), max_size=8
)


@given(st.integers(1, 2**62), sizes)
def test_shares_are_in_proportion_rounded_down_and_at_least_one(limit: int, has: dict) -> None:
    shares = share_out(limit, has)
    assert shares.keys() == has.keys()
    total = sum(has.values())
    for tp, share in shares.items():
        assert share <= has[tp]
        assert bool(share) == bool(has[tp])
        if share > 1:
            assert share == min(has[tp], limit * has[tp] // total)
    assert sum(shares.values()) <= limit + len(has)


def test_shares_as_kafka_gives_them() -> None:
    has = {T("t", 0): 101, T("t", 1): 11, T("t", 2): 1}
    assert list(share_out(10, has).values()) == [8, 1, 1]
    assert list(share_out(10, {T("t", 0): 93, T("t", 1): 10, T("t", 2): 0}).values()) == [9, 1, 0]
    assert share_out(2**63 - 1, {T("t", 0): 5}) == {T("t", 0): 5}


ranges = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(0, 5000)), min_size=0, max_size=8
).map(lambda said: [OffsetRange("t", p, low, low + size) for p, (low, size) in enumerate(said)])


@given(ranges, st.none() | st.integers(1, 40), st.none() | st.integers(1, 700))
def test_pieces_tile_the_ranges(whole: list, least: int | None, most: int | None) -> None:
    pieces = split_ranges(whole, least, most)
    for r in whole:
        mine = [p for p in pieces if p.partition == r.partition]
        assert all(p.size > 0 for p in mine)
        at = r.start
        for piece in mine:
            assert piece.start == at
            at = piece.end
        assert at == r.end or (r.size == 0 and not mine)
    if most is not None:
        assert all(p.size <= most for p in pieces)
    if least is None and most is None:
        assert pieces == [r for r in whole if r.size]


def _cut(least: int, *bounds: tuple[int, int]) -> list[tuple[int, int, int]]:
    whole = [OffsetRange("t", p, low, high) for p, (low, high) in enumerate(bounds)]
    return [(p.partition, p.start, p.end) for p in split_ranges(whole, least, None)]


def test_min_partitions_as_kafka_cuts() -> None:
    assert _cut(4, (1, 5)) == [(0, 1, 2), (0, 2, 3), (0, 3, 4), (0, 4, 5)]
    assert _cut(3, (1, 2), (1, 2), (1, 2)) == [(0, 1, 2), (1, 1, 2), (2, 1, 2)]
    assert _cut(4, (1, 5), (1, 21), (1, 1)) == [(0, 1, 5), (1, 1, 7), (1, 7, 14), (1, 14, 21)]
    assert _cut(4, (1, 2), (1, 1001)) == [(0, 1, 2), (1, 1, 334), (1, 334, 667), (1, 667, 1001)]
    assert _cut(1, (1, 5), (1, 21)) == [(0, 1, 5), (1, 1, 21)]
    assert _cut(3, (1, 11)) == [(0, 1, 4), (0, 4, 7), (0, 7, 11)]
    uneven = [(0, 0, 3), (0, 3, 6), (0, 6, 10), (1, 0, 3), (1, 3, 6), (1, 6, 10), (2, 0, 1)]
    assert _cut(6, (0, 10), (0, 10), (0, 1)) == uneven
    assert _cut(6, (0, 500), (0, 12000), (0, 15001)) == [
        (0, 0, 500), (1, 0, 6000), (1, 6000, 12000),
        (2, 0, 5000), (2, 5000, 10000), (2, 10000, 15001),
    ]  # fmt: skip
    assert _cut(6, (0, 1), (0, 1), (0, 10000)) == [
        (0, 0, 1), (1, 0, 1),
        (2, 0, 2500), (2, 2500, 5000), (2, 5000, 7500), (2, 7500, 10000),
    ]  # fmt: skip


def test_max_records_cuts_evenly() -> None:
    whole = [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 5, 8)]
    cut = [(r.partition, r.start, r.end) for r in split_ranges(whole, None, 4)]
    assert cut == [(0, 0, 3), (0, 3, 6), (0, 6, 10), (1, 5, 8)]
