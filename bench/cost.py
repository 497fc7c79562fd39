"""What a stated load costs a month on S3, next to the machines of a small Kafka cluster.

1. What is asked of the store was counted by the figure ``cost_month``; only prices and the load
   itself are stated here.
2. Prices are public list prices, on demand and without discounts, before free tiers and taxes.
3. Both sides leave out the machines of producers and readers, which are the same. Kafka's side
   leaves out what is harder to state: somebody's time, and room to grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

PRICES_OF = "AWS us-east-1, June 2026"
PUT, GET = 0.005 / 1000, 0.0004 / 1000
"""S3 Standard: a PUT, POST or LIST; a GET or HEAD."""
S3_GB = 0.023
MACHINE_HOUR = 0.0816
"""m7g.large: 2 cores, 8 GB."""
DISK_GB = 0.08
"""gp3."""
ZONE_GB = 0.02
"""Between zones: 0.01 on each side."""

SECONDS = 30 * 24 * 3600
DAYS_KEPT = 7
ROUNDS = SECONDS / 3600
"""Of upkeep."""
PRODUCERS, APPENDS, EVENTS = 4, 1.0, 1_000
"""Producers, appends of each a second, events in each: 4,000 events of 200 bytes a second."""
PARTITIONS = 12
QUERIES, TRIGGER = 2, 10
"""Spark queries that read all of it with a group, and the seconds between their triggers."""
BROKERS, COPIES, DISK_USED = 3, 3, 0.6
"""A small cluster: three zones, three copies, disks that are filled to three fifths."""
LOAD = (
    f"{PRODUCERS} producers that append {EVENTS:,} JSON events of 200 bytes each second, "
    f"{PARTITIONS} partitions, {QUERIES} Spark queries with a trigger every {TRIGGER} seconds and "
    f"committed groups, upkeep every hour, {DAYS_KEPT} days kept"
)


class Line(NamedTuple):
    """One item of a bill."""

    what: str
    arithmetic: str
    dollars: float


def _requests(what: str, times: float, each: str, puts: float, gets: float) -> Line:
    how = f"{times / 1e6:.3g} M {each} x ({puts:.3g} PUT + {gets:.3g} GET)"
    return Line(what, how, times * (puts * PUT + gets * GET))


def ours(counted: Mapping[str, float]) -> list[Line]:
    """The bill of S3."""
    appends = PRODUCERS * APPENDS * SECONDS
    kept = PRODUCERS * APPENDS * EVENTS * DAYS_KEPT * 86_400 * counted["stored_bytes"] / 1e9
    chain = appends * 12 * counted["stub_bytes"] / 1e9
    query = QUERIES * SECONDS / TRIGGER
    # Counted apart from the appends' own since November 2026.
    puts = counted.get("round_puts")
    rounds = [] if puts is None else [_requests("rounds", ROUNDS, "rounds of upkeep", puts, 0)]
    return [
        _requests("append", appends, "appends", counted["append_puts"], counted["append_gets"]),
        _requests("read", query, "triggers", counted["trigger_puts"], counted["trigger_gets"]),
        _requests("upkeep", appends, "appends", counted["upkeep_puts"], counted["upkeep_gets"]),
        *rounds,
        Line("records", f"{kept:.3g} GB x {S3_GB}", kept * S3_GB),
        Line(
            "chain",
            f"{chain:.3g} GB after a year, half of it on average, x {S3_GB}",
            chain / 2 * S3_GB,
        ),
    ]


def kafka(counted: Mapping[str, float]) -> list[Line]:
    """The bill of machines that run Kafka."""
    rate = PRODUCERS * APPENDS * EVENTS * counted["kafka_bytes"] / 1e9
    disk = rate * DAYS_KEPT * 86_400 * COPIES / DISK_USED
    # Two of three clients sit in another zone than the leader they talk to.
    crossing = rate * SECONDS * (COPIES - 1 + 2 / 3 * (1 + QUERIES))
    hours = SECONDS / 3600
    return [
        Line(
            "brokers",
            f"{BROKERS} m7g.large x {hours:.0f} h x {MACHINE_HOUR}",
            BROKERS * hours * MACHINE_HOUR,
        ),
        Line("disks", f"{disk:.3g} GB x {DISK_GB}", disk * DISK_GB),
        Line("between zones", f"{crossing:.3g} GB x {ZONE_GB}", crossing * ZONE_GB),
    ]


def total(lines: list[Line]) -> float:
    """The sum of a bill."""
    return sum(line.dollars for line in lines)
