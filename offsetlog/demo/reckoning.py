"""The count of every order, and whether each promise was kept.

Invariant: it opens the log again, and trusts nothing but what the senders counted.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import offsetlog
from offsetlog.demo.orders import GROUP, TOPIC, order, worth
from offsetlog.demo.stage import Stage
from offsetlog.demo.tail import Stored


class Finding(NamedTuple):
    """One promise, and whether it was kept."""

    promise: str
    kept: bool
    detail: str


class Reading(NamedTuple):
    """A reading of the whole topic: what was billed, compared with what was sent."""

    name: str
    sent: int
    worth: int
    """Cents, as they should be."""
    missing: int
    invoices: int
    places: int
    orders: int
    cents: int

    @property
    def twice(self) -> int:
        return self.invoices - min(self.places, self.orders)


def take_reading(stage: Stage, name: str, version: int) -> Reading:
    """The invoices of one version of the rule."""
    missing = cents = 0
    for sender in stage.senders:
        missing += len(set(range(sender.sent)) - stage.billing.numbers(version, sender.name))
        cents += worth(sender.name, sender.sent)
    return Reading(name, stage.sent, cents, missing, *stage.billing.count(version))


def findings(stage: Stage, first: Reading, replay: Reading) -> list[Finding]:
    stored: Stored = {}
    with offsetlog.open(stage.root) as log:
        with log.consumer(topics=TOPIC, auto_offset_reset="earliest") as consumer:
            while records := consumer.poll(0.0, 10_000):
                stored.update({(r.partition, r.offset): r.value for r in records})
        lag = log.group(GROUP).describe().total.records
        faults = [str(fault) for report in log.verify(TOPIC) for fault in report.faults]
    in_time, recovery = stage.readers.recovery()
    return [
        *(_whole(reading, len(stored)) for reading in (first, replay)),
        Finding(
            "The first sum was wrong, the replay's is right",
            first.cents != first.worth and replay.cents == replay.worth,
            f"{money(first.cents)}, then {money(replay.cents)}",
        ),
        _acknowledged(stage, stored),
        _tailed(stage, stored),
        _shops(stage),
        Finding("The group recovered from the kill", in_time, recovery),
        Finding("The group has read everything", lag == 0, f"lag {lag}"),
        Finding("verify finds no fault", not faults, "; ".join(faults[:3]) or "all files read"),
    ]


def _whole(reading: Reading, stored: int) -> Finding:
    numbers = {reading.sent, stored, reading.invoices, reading.places, reading.orders}
    return Finding(
        f"The {reading.name} lost and duplicated nothing",
        len(numbers) == 1 and reading.sent > 0 and reading.missing == 0,
        f"{reading.sent:,} sent, {stored:,} stored, {reading.invoices:,} billed, "
        f"{reading.missing} missing, {reading.twice} twice",
    )


def _acknowledged(stage: Stage, stored: Stored) -> Finding:
    orders = {place: json.loads(value or b"{}") for place, value in stored.items()}
    places = [(shop.name, *pair) for shop in stage.shops for pair in shop.places.items()]
    wrong = sum(orders.get(place) != order(name, number) for name, place, number in places)
    twice = len(orders) - len({(one["sender"], one["number"]) for one in orders.values()})
    return Finding(
        "Each acknowledged order is at its offset, once",
        wrong == twice == 0 and len(places) > 0,
        f"{len(places):,} acknowledged, {wrong} lost or elsewhere, {twice} twice",
    )


def _tailed(stage: Stage, stored: Stored) -> Finding:
    tail = stage.tail
    detail = f"{len(tail.records):,} records, median latency {tail.latency_ms()} ms"
    return Finding(
        "The live tail saw all of them, in order",
        tail.records == stored and not tail.faults,
        "; ".join(tail.faults[:3]) or detail,
    )


def _shops(stage: Stage) -> Finding:
    victim = stage.shops[-1]
    programs = [shop.program for shop in stage.shops]
    at_fault = [f"{one.name} {one.state}" for one in programs if one.state != "ended"]
    return Finding(
        "A shop was killed, and all of them finished",
        not at_fault and 0 < victim.killed_after < victim.sent,
        ", ".join(at_fault) or f"killed after {victim.killed_after:,} orders, then went on",
    )


def money(cents: int) -> str:
    return f"{cents // 100:,}.{cents % 100:02}"
