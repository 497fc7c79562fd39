"""Where each reset puts the positions, and Kafka's corner cases of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetlog.core.group.positions_csv import PositionRow, format_positions, parse_positions
from offsetlog.core.group.reset import (
    SCENARIOS,
    ByDuration,
    FromFile,
    OffsetSpan,
    ShiftBy,
    ToCurrent,
    ToDatetime,
    ToEarliest,
    ToLatest,
    ToOffset,
    choose_scenario,
    plan_reset,
    target_time,
)
from offsetlog.core.group.state import Position
from offsetlog.errors import InvalidRequestError, UnknownTopicError

P0, P1 = ("orders", 0), ("orders", 1)
SPANS = {P0: OffsetSpan(20, 120), P1: OffsetSpan(0, 80)}


def at(offset):
    return Position(offset, "", 0, None, 0, "commit", 0)


def warnings(moves):
    return tuple(move.warning for move in moves if move.warning)


def offsets(moves):
    return {(move.topic, move.partition): move.after for move in moves}


def plan(scenario, positions=None, targets=(P0, P1), found=None):
    return plan_reset(
        {P0: at(53), P1: at(7)} if positions is None else positions,
        scenario,
        targets,
        SPANS,
        found or {},
    )


@pytest.mark.parametrize(
    ("scenario", "found", "after"),
    [
        (ToEarliest(), {}, [20, 0]),
        (ToLatest(), {}, [120, 80]),
        (ToCurrent(), {}, [53, 7]),
        (ToOffset(42), {}, [42, 42]),
        (ShiftBy(-5), {}, [48, 2]),
        (ShiftBy(20), {}, [73, 27]),
        (ToDatetime(1000), {P0: 90, P1: 33}, [90, 33]),
        (ByDuration(1000), {P0: 90, P1: None}, [90, 80]),
        (FromFile((PositionRow(1, "orders", 1, 60),)), {}, [60]),
    ],
)
def test_each_scenario_has_its_before_and_after(scenario, found, after):
    made = plan(scenario, found=found)
    assert [move.after for move in made] == after
    assert warnings(made) == ()
    assert {(m.topic, m.partition): m.before for m in made}.items() <= {
        P0: 53,
        P1: 7,
    }.items()


def test_targets_out_of_range_are_clamped_with_a_warning():
    made = plan(ToOffset(100))
    assert [m.after for m in made] == [100, 80]
    assert warnings(made) == (
        "Offset 100 of partition 1 of topic 'orders' is past the latest offset 80; "
        "80 is taken instead.",
    )
    low = plan(ShiftBy(-50))
    assert [m.after for m in low] == [20, 0]
    assert ["before the earliest" in w for w in warnings(low)] == [True, True]
    assert [m.after for m in plan(ToOffset(-1))] == [20, 0]
    assert [m.after for m in plan(FromFile((PositionRow(1, "orders", 0, 10**12),)))] == [120]


def test_a_current_position_that_retention_passed_is_clamped():
    made = plan(ToCurrent(), positions={P0: at(3)})
    assert [(m.before, m.after) for m in made] == [(3, 20), (None, 80)]
    assert len(warnings(made)) == 1


def test_to_current_without_a_commit_goes_to_the_latest():
    assert offsets(plan(ToCurrent(), positions={})) == {P0: 120, P1: 80}


def test_shift_by_without_a_commit_is_an_error():
    with pytest.raises(InvalidRequestError, match="partition 1 of topic 'orders'"):
        plan(ShiftBy(1), positions={P0: at(53)})


def test_unknown_partitions_are_named_and_so_is_the_line_of_the_file():
    with pytest.raises(UnknownTopicError, match="Topic 'orders' has no partition 7|topic 'orders'"):
        plan(ToEarliest(), targets=[("orders", 7)])
    with pytest.raises(UnknownTopicError, match="There is no topic 'clicks'"):
        plan(ToEarliest(), targets=[("clicks", 0)])
    with pytest.raises(UnknownTopicError, match="Line 3 of the file: there is no topic"):
        plan(FromFile((PositionRow(1, "orders", 0, 1), PositionRow(3, "clicks", 0, 1))))
    with pytest.raises(InvalidRequestError, match="names no partition"):
        plan(ToEarliest(), targets=[])


@given(
    st.one_of(
        st.sampled_from([ToEarliest(), ToLatest(), ToCurrent()]),
        st.integers(-(2**63), 2**63 - 1).map(ToOffset),
        st.integers(-(2**63), 2**63 - 1).map(ShiftBy),
        st.integers(0, 10**12).map(ToDatetime),
    ),
    st.integers(0, 10**9),
    st.integers(0, 10**6),
    st.integers(0, 10**10),
    st.one_of(st.none(), st.integers(0, 10**9)),
)
def test_a_plan_stays_inside_the_log_and_says_when_it_had_to(scenario, start, size, before, hit):
    span = OffsetSpan(start, start + size)
    found = None if hit is None else min(max(hit, span.start), span.end)
    made = plan_reset({P0: at(before)}, scenario, [P0], {P0: span}, {P0: found})
    (move,) = made
    assert span.start <= move.after <= span.end
    assert move.before == before
    if isinstance(scenario, ToOffset):
        assert bool(move.warning) == (not span.start <= scenario.offset <= span.end)
    if isinstance(scenario, ShiftBy):
        assert bool(move.warning) == (move.after != before + scenario.by)
    if isinstance(scenario, ToEarliest | ToLatest | ToDatetime):
        assert not move.warning


def test_the_time_to_look_for():
    assert target_time(ToDatetime(5), 1_000) == 5
    assert target_time(ByDuration(300), 1_000) == 700
    assert target_time(ToLatest(), 1_000) is None


# --- choosing ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "scenario"),
    [
        ({"to_earliest": True}, ToEarliest()),
        ({"to-latest": True, "to_offset": None}, ToLatest()),
        ({"to_current": True, "to_earliest": False}, ToCurrent()),
        ({"to_offset": "120"}, ToOffset(120)),
        ({"to_offset": 0}, ToOffset(0)),
        ({"shift_by": "-20"}, ShiftBy(-20)),
        ({"to_datetime": "1970-01-01T00:00:01"}, ToDatetime(1000)),
        ({"by_duration": "PT10M"}, ByDuration(600_000)),
        ({"from_file": "orders,0,7\n"}, FromFile((PositionRow(1, "orders", 0, 7),))),
    ],
)
def test_one_scenario_is_chosen(given_, scenario):
    assert choose_scenario("billing", given_) == scenario


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({}, "must say where to"),
        ({"to_offset": 1, "to_earliest": True}, "not to-earliest and to-offset"),
        ({"to_moon": True}, "'to-moon'"),
        ({"to_offset": "1.5"}, "not '1.5'"),
        ({"shift_by": True}, "not True"),
        ({"to_datetime": "soon"}, "'soon' is not a date"),
        ({"by_duration": "-PT1M"}, "'-PT1M' is negative"),
        ({"from_file": "orders,x,1"}, "Line 1 of the file is wrong: 'x'"),
    ],
)
def test_a_wrong_choice_is_told(given_, message):
    with pytest.raises(InvalidRequestError, match=message):
        choose_scenario("billing", given_)


def test_all_eight_are_there():
    assert len(SCENARIOS) == 8


# --- the file ------------------------------------------------------------------------------

names = st.from_regex(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,20}", fullmatch=True)
offsets_ = st.dictionaries(
    st.tuples(names, st.integers(0, 1000)), st.integers(0, 2**63 - 1), min_size=1
)


@given(offsets_, st.sampled_from([None, "billing"]))
def test_what_is_exported_reads_back(offsets, group):
    lines = parse_positions(format_positions(offsets, group), "billing")
    assert {(line.topic, line.partition): line.offset for line in lines} == offsets


def test_an_exported_plan_does_the_same_again():
    made = plan(ShiftBy(3))
    lines = parse_positions(format_positions(offsets(made)), "billing")
    assert plan(FromFile(lines)) == made


def test_headers_blank_lines_quotes_and_other_groups_are_understood():
    text = (
        '\ufeffgroup,topic,partition,offset\r\n\r\nbilling,"orders", 0 ,5\r\nother,orders,0,9\r\n'
    )
    assert parse_positions(text, "billing") == (PositionRow(3, "orders", 0, 5),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("orders,0,1\norders,1\n", "Line 2 of the file is wrong: it has 2 fields"),
        ("orders,0,1\n\norders,1,-4\n", "Line 3 .* '-4' is not an offset"),
        ("orders,0,1\norders,0,2\n", "Line 2 .* is in line 1 already"),
        ("orders,0,99999999999999999999\n", "Line 1"),
        ("../etc,0,1\n", "Line 1 .* '../etc' is not a topic's name"),
        ('orders,0,1\n"orders,1,2\n', "Line 2"),
        ("orders,0,1\ntopic,partition,offset\n", "Line 2"),
        ("orders,٣,1\n", "Line 1"),
        ('"orders\n",0,1\norders,1\n', "Line 3"),
        ("", "no line for the group 'billing'"),
        ("other,orders,0,1\n", "It is for other"),
    ],
)
def test_a_wrong_line_is_named_by_its_number(text, message):
    with pytest.raises(InvalidRequestError, match=message):
        parse_positions(text, "billing")


@given(st.text(max_size=80))
def test_any_text_is_lines_or_a_clear_error(text):
    try:
        parse_positions(text, "billing")
    except InvalidRequestError as error:
        assert "Line" in error.message or "no line" in error.message
