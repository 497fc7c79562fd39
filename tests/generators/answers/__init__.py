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
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from unittest import mock

from tests.generators.answers import spark_ways
from tests.generators.answers.model import Topic
from tests.generators.answers.planted import PLANTED
from tests.generators.answers.spark_ways import SPARK_WAYS
from tests.generators.answers.states import make, one_step
from tests.generators.answers.ways import WAYS, Way
from tests.generators.answers.world import JOINS, TRAITS, Asked, Opened, World
from tests.generators.registry import OPERATIONS, WITH

RUNNING, REPLAY = "a running consumer", "Spark: replay"
NEW, WHILE, BEFORE = "a new program", "opened while", "opened before"
OPENS_ANEW = {"command line", "copy", "copy's table"}
"""Ways that open the log themselves."""
BETWEEN = (
    "entries", "segments", "a snapshot", "a round", "an erasure", "an erasure", "records deleted",
)  # fmt: skip
BETWEEN_LEANING = "entries", "segments"
"""The same where a history leans on what others would take away."""
SPARK_QUESTIONS = 5
LATER = 6.0
"""Seconds after which nobody may give what was erased."""
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
            _told_in_a_story(world, make, world)
            found = asked(world, ways, world.rng)
        if spark_ways.session() is not None:
            found += asked_in_spark(world, world.rng)
        if found:
            raise Differences(found, world.story)
        return world.counts
    finally:
        world.close()


def _told_in_a_story(world: World, step: Callable[..., None], *given: object) -> None:
    try:
        step(*given)
    except Exception as error:
        raise Differences([("a step", f"{type(error).__name__}: {error}")], world.story) from error


def asked(world: World, ways: Mapping[str, Way], rng: random.Random) -> list[tuple[str, str]]:
    """Ask each topic by each way, in any order; the differences."""
    if RUNNING in ways:
        _change(world, rng, "a consumer")
        _change(world, rng)
    world.shift += LATER
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
        if rng.random() < 0.1:
            _change(world, rng)
        if name in OPENS_ANEW:
            with closing(world.open()) as opened:
                opened.log.topic(topic.name)
                found += _answered(world, rng, opened, topic, name, ways[name])
            continue
        opened = chosen if chosen in world.programs else world.anybody(rng)
        found += _answered(world, rng, opened, topic, name, ways[name])
    return found


def _change(world: World, rng: random.Random, name: str = "") -> None:
    """Something that most programs have not seen when they are asked."""
    topic = rng.choice(list(world.topics.values()))
    between = BETWEEN if world.lean in (None, JOINS) else BETWEEN_LEANING
    _told_in_a_story(world, one_step, world, name or rng.choice(between), topic)
    world.shift += LATER


def _answered(
    world: World, rng: random.Random, opened: Opened, topic: Topic, name: str, way: Way
) -> list[tuple[str, str]]:
    """Ask, and count it; what is wrong with the answer."""
    traits = world.traits(opened, topic)
    if name == REPLAY:
        # The query looked before the log was changed.
        traits = traits - {NEW} | {BEFORE}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            was_asked = way(Asked(world, random.Random(rng.random()), opened, topic))
    except Exception as error:  # noqa: BLE001 - it is a finding, like any other answer
        about = ", ".join(sorted(traits))
        return [(name, f"{topic.name}, {about}: {type(error).__name__}: {error}")]
    opened.seen[topic.name] = topic.changes
    if was_asked is not False:
        world.counts[OPERATIONS] += 1
        world.counts.update(f"{trait}{WITH}{name}" for trait in traits)
    return []


def asked_in_spark(world: World, rng: random.Random) -> list[tuple[str, str]]:
    """Ask by some of Spark's ways: each starts processes of its own, and takes seconds."""
    found = []
    names = list(SPARK_WAYS)
    for name in sorted(rng.sample(names, SPARK_QUESTIONS), key=names.index):
        topic = rng.choice(list(world.topics.values()))
        with closing(world.open()) as opened:
            opened.log.topic(topic.name)
            found += _answered(world, rng, opened, topic, name, SPARK_WAYS[name])
    return found


def surroundings() -> AbstractContextManager[object]:
    """A session of Spark for the histories of a long run."""
    return spark_ways.own_session()


def can_be(trait: str, way: str) -> bool:
    """Whether a way can meet a state: some always open the log anew, one never does."""
    if way in (RUNNING, REPLAY):
        return trait != NEW and (way == RUNNING or trait != WHILE)
    return trait not in (WHILE, BEFORE) or way not in OPENS_ANEW | SPARK_WAYS.keys()


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
        met = (
            counts.get(f"{trait}{WITH}{way}", 0) if can_be(trait, way) else "." for trait in TRAITS
        )
        lines.append(f"{way:{wide}}" + "".join(f"{count:>7}" for count in met))
    lines += [f"{n:3} {trait}: {what}" for n, (trait, what) in enumerate(TRAITS.items(), 1)]
    return "\n".join(lines)
