"""The short form of the load. ``make soak`` runs it for longer.

``OFFSETLOG_LOAD_SECONDS`` sets for how long (40)."""

from __future__ import annotations

import os

import pytest

from tests.soak.load import LIMITS, MACHINE, Outcome, judge, load, scarce, table

SECONDS = float(os.environ.get("OFFSETLOG_LOAD_SECONDS", "40"))


@pytest.mark.alone
def test_nothing_grows_under_an_even_load():
    outcome = load(SECONDS)
    print(table(outcome))
    assert not outcome.violations, table(outcome)
    assert outcome.appended > 8 * 25 * SECONDS / 4, "the writers did not get to work"


def steady() -> dict[str, list[float]]:
    return {name: [100.0] * 9 for name in (MACHINE, *LIMITS)}


def test_what_grows_is_named():
    assert judge(steady(), 1e6) == []
    for name, limit in LIMITS.items():
        slack = limit.plus + 100 * (limit.times - 1)
        within = steady() | {name: [0.0] * 3 + [100.0] * 3 + [100 + 0.9 * slack] * 3}
        beyond = steady() | {name: [0.0] * 3 + [100.0] * 3 + [100 + 1.1 * slack] * 3}
        assert judge(within, 1e6) == []
        [said] = judge(beyond, 1e6)
        assert said.startswith(f"{name} grew from 100 to")


def test_times_may_grow_as_those_of_the_machine_do_and_nothing_else():
    busy = steady() | {MACHINE: [10.0] * 6 + [30.0] * 3}
    slow = [100.0] * 6 + [300.0] * 3
    assert judge(busy | {"an append": slow}, 1e6) == []
    for series in (
        busy | {"an append": [100.0] * 6 + [500.0] * 3},
        busy | {"segments": slow},
        steady() | {MACHINE: [30.0] * 6 + [10.0] * 3, "an append": slow},
    ):
        assert len(judge(series, 1e6)) == 1


def test_what_takes_longer_to_settle_is_judged_of_long_runs():
    growing = steady() | {"snapshots and leaves": [float(10 * n) for n in range(90)]}
    assert judge(growing, 30) == []
    assert len(judge(growing, 600)) == 1


def test_what_was_not_seen_is_no_proof():
    assert scarce(steady(), 1e6) == []
    assert scarce(steady() | {"an append": [1.0] * 5}, 1e6) == ["an append"]
    assert scarce(steady() | {"snapshots and leaves": []}, 60) == []
    [said] = judge(steady() | {"an append": [1.0] * 5}, 1e6)
    assert said == "an append: seen 5 times only"
    outcome = Outcome(1.0, 5, steady(), (said,))
    assert "5 records in 1 s, read by two queries; violations: 1" in table(outcome)
    assert said in table(outcome).splitlines()[-1]
