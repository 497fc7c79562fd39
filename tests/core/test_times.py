"""ISO 8601 as people write it, and as they miswrite it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetlog.core.times import parse_datetime, parse_duration
from offsetlog.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01", 0),
        ("1970-01-01T01", 3_600_000),
        ("1970-01-01 00:01", 60_000),
        ("1970-01-01T00:00:00.5", 500),
        ("1970-01-01T00:00:00,007", 7),
        ("1970-01-01T00:00:00.0070001", 8),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T01:00:00+01", 0),
        ("1970-01-01t00:00:00z", 0),
        ("19700101T000001.250Z", 1250),
        ("19700101T0530+0530", 0),
        ("1970-W01-4", 0),
        ("1969-12-31T23:59:59.999", -1),
        (" 2026-03-01T12:30:00.123 ", 1_772_368_200_123),
    ],
)
def test_a_time_is_understood(text, ms):
    assert parse_datetime(text) == ms


@given(st.datetimes(timezones=st.integers(-840, 840).map(lambda m: timezone(timedelta(minutes=m)))))
def test_what_python_writes_reads_back(when):
    try:
        since = when - datetime(1970, 1, 1, tzinfo=UTC)
    except OverflowError:
        return
    try:
        found = parse_datetime(when.isoformat())
    except InvalidRequestError:
        assert when.year in (1, 9999)
        return
    assert found == -(-since // timedelta(milliseconds=1))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026-13-01",
        "2026-02-30T00:00:00",
        "2026-02-01T24:00:00",
        "2026-02-01T10:60:00",
        "2026-02-01X10:00:00",
        "2026-02-01T10:00:00 Europe/Berlin",
        "2026-02-01T10:00:00+25:00",
        "2026-02-01T10:00:00+02:75",
        "1772368200123",
        "2026-2-1",
        "٢٠٢٦-٠٢-٠١",
        "2026-02-01T10:00:00Z\n2026",
    ],
)
def test_a_wrong_time_is_named(text):
    with pytest.raises(InvalidRequestError) as error:
        parse_datetime(text)
    assert repr(text) in error.value.message
    assert "ISO 8601" in error.value.hint


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT0S", 0),
        ("P7D", 7 * 86_400_000),
        ("P2W", 14 * 86_400_000),
        ("PT10M", 600_000),
        ("-PT10M", -600_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("PT0.0001S", 1),
        ("pt1h", 3_600_000),
        ("PT90M", 5_400_000),
    ],
)
def test_a_duration_is_understood(text, ms):
    assert parse_duration(text) == ms


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1", "7D", "P1DT", "PT1.5H", "PT1S1M", "P1M", "P1Y", "PT-1S", "P-1D"]
)
def test_a_wrong_duration_is_named(text):
    with pytest.raises(InvalidRequestError) as error:
        parse_duration(text)
    assert repr(text) in error.value.message


def test_months_are_told_apart_and_too_long_is_refused():
    with pytest.raises(InvalidRequestError, match="use days"):
        parse_duration("P1M")
    for text in ("P9999999999D", "P" + "9" * 5000 + "D"):
        with pytest.raises(InvalidRequestError, match="too long"):
            parse_duration(text)
