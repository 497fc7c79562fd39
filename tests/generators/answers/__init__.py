"""One oracle over all that reads: a log in a random state, asked by every way that there is.

A history makes a log by the steps of ``states.py``, with programs that opened it before, while and
after, and then asks it by each way of ``ways.py`` (and of ``spark_ways.py``, where there is a
session). ``model.py`` says what each answer is. Any difference is a failure.

1. A way to ask, and a step, is one function in a table.
2. The clocks of all programs are put forward before they are asked: whoever knows the log from
   before looks again, so it may give nothing that was deleted.
3. Each pair of what is special about the log and a way that has asked it is counted.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from unittest import mock

from tests.generators.answers import spark_ways
from tests.generators.answers.model import Topic
from tests.generators.answers.planted import PLANTED
from tests.generators.answers.spark_ways import SPARK_WAYS
from tests.generators.answers.states import make
from tests.generators.answers.ways import WAYS, Way
from tests.generators.answers.world import TRAITS, Asked, Opened, World
from tests.generators.registry import OPERATIONS, WITH

RUNNING = "a running consumer"
__all__ = ["PLANTED", "history", "surroundings", "told"]


class Differences(AssertionError):
    """All that was found in one history, and how the log was made."""

    def __init__(self, found: list[tuple[str, str]], story: list[str]) -> None:
        self.found = found
        lines = [f"{way}: {what}" for way, what in found]
        super().__init__("\n".join([*lines, "", "The log:", *story]))


def history(seed: int, folder: Path) -> Counter[str]:
    """One history; what is wrong is raised."""
    return run(World(seed, folder), WAYS)


@contextmanager
def _no_power_cuts() -> Iterator[None]:
    """Nothing waits for the disk: what a power cut leaves is not asked here."""
    with mock.patch("os.fsync", lambda file: None), mock.patch("os.fdatasync", lambda file: None):
        yield


def run(world: World, ways: Mapping[str, Way]) -> Counter[str]:
    """Make the log, and ask it by these ways, and by Spark's if there is a session."""
    try:
        with _no_power_cuts():
            _make(world)
            found = asked(world, ways, world.rng)
        if spark_ways.session() is not None:
            found += asked_in_spark(world, world.rng)
        if found:
            raise Differences(found, world.story)
        return world.counts
    finally:
        world.close()


def _make(world: World) -> None:
    try:
        make(world)
    except Exception as error:
        raise Differences([("a step", f"{type(error).__name__}: {error}")], world.story) from error


def asked(world: World, ways: Mapping[str, Way], rng: random.Random) -> list[tuple[str, str]]:
    """Ask each topic by each way, in any order; the differences."""
    world.shift += 6.0
    found = []
    topics = list(world.topics.values())
    # Who has read before goes on, and each program is asked once as it is; then each topic in each
    # way.
    questions: list[tuple[Opened | None, Topic, str]] = [
        (one.opened, world.topics[one.topic], RUNNING) for one in world.running if RUNNING in ways
    ]
    questions += [
        (opened, topic, rng.choice(list(ways)))
        for opened in world.programs
        for topic in topics
        if ways
    ]
    questions += rng.sample(
        rest := [(None, topic, name) for topic in topics for name in ways], len(rest)
    )
    for chosen, topic, name in questions:
        opened = world.anybody(rng) if chosen is None else chosen
        traits = world.traits(opened, topic)
        question = Asked(world, random.Random(rng.random()), opened, topic)
        found += _answered(question, name, ways[name], traits)
        opened.seen[topic.name] = topic.changes
    return found


def _answered(ask: Asked, name: str, way: Way, traits: set[str]) -> list[tuple[str, str]]:
    """Ask, and count it; what is wrong with the answer."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            was_asked = way(ask)
    except Exception as error:  # noqa: BLE001 - it is a finding, like any other answer
        about = ", ".join(sorted(traits))
        return [(name, f"{ask.name}, {about}: {type(error).__name__}: {error}")]
    if was_asked is not False:
        ask.world.counts[OPERATIONS] += 1
        ask.world.counts.update(f"{trait}{WITH}{name}" for trait in traits)
    return []


def asked_in_spark(world: World, rng: random.Random) -> list[tuple[str, str]]:
    """Ask by some of Spark's ways: each starts processes of its own, and takes seconds."""
    found = []
    names = list(SPARK_WAYS)
    for name in sorted(rng.sample(names, 3), key=names.index):
        topic, opened = rng.choice(list(world.topics.values())), world.open()
        try:
            opened.log.topic(topic.name)
            question = Asked(world, random.Random(rng.random()), opened, topic)
            found += _answered(question, name, SPARK_WAYS[name], world.traits(opened, topic))
        finally:
            opened.log.close()
    return found


def surroundings() -> AbstractContextManager[object]:
    """A session of Spark for the histories of a long run."""
    return spark_ways.own_session()


def told(counts: Mapping[str, int]) -> str:
    """A table of the pairs that were met: a row for each way, a column for each state."""
    ways = [*WAYS, *SPARK_WAYS]
    wide = max(map(len, ways))
    numbers = "".join(f"{n:7}" for n in range(1, len(TRAITS) + 1))
    lines = [
        f"{counts[OPERATIONS]:,} answers" if OPERATIONS in counts else "",
        " " * wide + numbers,
    ]
    for way in ways:
        met = (counts.get(f"{trait}{WITH}{way}", 0) for trait in TRAITS)
        lines.append(f"{way:{wide}}" + "".join(f"{count:7}" for count in met))
    lines += [f"{n:3} {trait}: {what}" for n, (trait, what) in enumerate(TRAITS.items(), 1)]
    return "\n".join(lines)
