"""The short form of each generator: its histories are sound, and each bug that is planted is found
by it. ``make soak`` is the long form. ``OFFSETLOG_HISTORIES`` sets for how many histories."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.generators.__main__ import main
from tests.generators.registry import BY_NAME, GENERATORS, OPERATIONS, first_failure
from tests.planted import all_histories, seeds_for
from tests.simulation.run import GROUPS_KIND, campaign, story

MANY = int(os.environ.get("OFFSETLOG_HISTORIES", "0"))


@pytest.mark.parametrize("generator", GENERATORS, ids=lambda generator: generator.name)
def test_histories_are_sound(generator):
    counts = Counter[str]()
    for seed in range(1, max(generator.histories, MANY) + 1):
        outcome = generator.history(seed)
        if outcome.failure is not None:
            raise AssertionError(generator.again(seed)) from outcome.failure
        counts.update(outcome.counts)
    assert counts[OPERATIONS] > generator.histories
    assert len(counts) > 1, "nothing was let go wrong"


@pytest.mark.parametrize(
    ("name", "bug"),
    [(g.name, bug) for g in GENERATORS for bug, planted in g.planted.items() if not planted.beside],
)
def test_a_planted_bug_is_found(name, bug):
    generator = BY_NAME[name]
    seeds = seeds_for(all_histories()[name], bug, generator.budget)
    with generator.planted[bug].plant():
        count, outcome = first_failure(generator, seeds)
    assert outcome is not None, f"not found in {count} histories"


def test_the_command_says_how_many(capsys):
    assert main(["restarts", "--seeds", "1:2"]) == 0
    said = capsys.readouterr().out
    assert "2 histories" in said and "violations: 0" in said


@pytest.mark.parametrize(
    ("name", "bug"),
    [(name, bug) for name in ("power", "interrupts", "views") for bug in BY_NAME[name].planted],
)
def test_the_simulation_does_not_meet_what_is_planted_here(name, bug):
    """Else there would be no need of the generator."""
    with BY_NAME[name].planted[bug].plant():
        for outcome in (*campaign(range(1, 4)), *campaign(range(1, 4), GROUPS_KIND)):
            assert outcome.sound, story(outcome)
