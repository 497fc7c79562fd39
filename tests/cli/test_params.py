"""Times, durations and offsets as people write them."""

from __future__ import annotations

import click
import pytest

from offsetlog.cli.params import (
    EARLIEST,
    LATEST,
    ConsumeFrom,
    Duration,
    OffsetOrTime,
    PartitionOffsets,
    Separator,
    Size,
    Time,
    Whole,
)

MARCH = 1_772_368_200_000


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (OffsetOrTime(), "earliest", EARLIEST),
        (OffsetOrTime(), "latest", LATEST),
        (OffsetOrTime(), "142", ConsumeFrom("offset", 142)),
        (OffsetOrTime(), "1772368200000", ConsumeFrom("offset", MARCH)),
        (OffsetOrTime(), "@1772368200000", ConsumeFrom("time", MARCH)),
        (OffsetOrTime(), "2026-03-01T12:30:00Z", ConsumeFrom("time", MARCH)),
        (OffsetOrTime(), "2026-03-01T14:30+02:00", ConsumeFrom("time", MARCH)),
        (Time(), "-1", LATEST),
        (Time(), "-2", EARLIEST),
        (Time(), "1772368200000", ConsumeFrom("time", MARCH)),
        (Time(), "2026-03-01 12:30", ConsumeFrom("time", MARCH)),
        (Duration(), "24h", 86_400_000),
        (Duration(), "30m", 1_800_000),
        (Duration(), "PT10M", 600_000),
        (Duration(), "P1DT1H", 90_000_000),
        (Duration(), "1500", 1500),
        (Duration(), "0", 0),
        (Duration(), "2w", 1_209_600_000),
        (Size(1), "512MB", 512 << 20),
        (Size(1), "64m", 64 << 20),
        (Size(1), "1 GiB", 1 << 30),
        (Size(1), "1500", 1500),
        (PartitionOffsets(), "0:120,1:80", {0: 120, 1: 80}),
        (PartitionOffsets(), "3:-1, 0:7", {3: -1, 0: 7}),
        (Separator(), r"\t", b"\t"),
        (Separator(), r"\\t", rb"\t"),
        (Separator(), "→", "→".encode()),
        (Whole(0), "7", 7),
        (Whole(2, 64), "64", 64),
    ],
)
def test_taken(kind, text, value):
    assert kind.convert(text, None, None) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *((OffsetOrTime(), text) for text in ("", "-1", "@", "@-1", "1.5", "Earliest", "9" * 20)),
        *((Time(), text) for text in ("", "-3", "now", "2026-02-30", "12:30")),
        *((Duration(), text) for text in ("", "-1", "-PT1M", "1y", "h", "1.5h", "P1M", "1 h")),
        *((Size(1024), text) for text in ("", "-1", "1023", "1x", "g", "1.5g", "9999999t", "1 y")),
        *((PartitionOffsets(), text) for text in ("", "0", "0:", ":1", "0:-2", "0:1;1:2", "0:1,")),
        *((Whole(0), text) for text in ("", "-1", "1.0", "one", "9" * 20)),
        *((Whole(2, 64), text) for text in ("1", "65")),
        (Separator(), ""),
    ],
)
def test_refused(kind, text):
    with pytest.raises(click.BadParameter):
        kind.convert(text, None, None)
