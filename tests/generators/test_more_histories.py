"""The long form of each generator and simulation, for some seconds of each: other histories than
those of the short form. ``make soak`` goes on for as long as one likes."""

from __future__ import annotations

import time

import pytest

from tests.generators.registry import GENERATORS
from tests.planted import SIMULATED
from tests.simulation.run import plan_of, run, story

FIRST = 101
"""Behind the seeds of the short form. Above 1,000 some histories take minutes."""
LAST = 1000
LEAST = 2
SECONDS = 5.0
"""No history begins later."""


@pytest.mark.parametrize("generator", GENERATORS, ids=lambda generator: generator.name)
def test_more_histories_are_sound(generator):
    ends = time.monotonic() + SECONDS
    for seed in range(FIRST, LAST):
        outcome = generator.history(seed)
        if outcome.failure is not None:
            raise AssertionError(generator.again(seed)) from outcome.failure
        if seed - FIRST >= LEAST and time.monotonic() > ends:
            break


@pytest.mark.parametrize("kind", [of.kind for of in SIMULATED.values()])
def test_more_of_what_is_simulated_is_sound(kind):
    ends = time.monotonic() + SECONDS
    for seed in range(FIRST, LAST):
        outcome = run(plan_of(seed, kind))
        assert outcome.sound, story(outcome)
        if seed - FIRST >= LEAST and time.monotonic() > ends:
            break
