"""What makes the state of a log: each step is one function, and says to the model what it did."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import offsetlog
from offsetlog.errors import OffsetLogError
from tests.generators.answers.model import Part, Rec, Topic
from tests.generators.answers.world import (
    EARLY,
    LARGE,
    LATE,
    LEAVES,
    Opened,
    Running,
    World,
    record_of,
)

DAY = 86_400_000
NOW = 1_767_225_600_000
TIMES = (
    -9_223_372_036_853, -8_520_336_000_000, -3_786_825_600_000, -2_208_988_800_001, -1, 0,
    NOW, NOW + 10 * DAY, 9_223_372_036_853,
)  # fmt: skip
"""1677, 1700, 1850, 1899, around 1970, now, to come, and 2262, in milliseconds."""
KEYS = [b"key-%d" % number for number in range(16)]
GROUPS = ("billing", "audit")


def _time_of(rng: random.Random, base: int) -> int:
    return max(TIMES[0], min(TIMES[-1], base + rng.randrange(-3000, 3000)))


def _send(world: World, topic: Topic, opened: Opened, count: int, size: int, times: int) -> None:
    """One append."""
    rng = world.rng
    with_headers = rng.random() < 0.6
    only = rng.randrange(len(topic.parts)) if rng.random() < 0.6 else None
    # All that is sent in a block without a flush is one append.
    with opened.log.producer(linger_ms=60_000) as producer:
        for _ in range(count):
            number = rng.randrange(len(topic.parts)) if only is None else only
            key: bytes | None = rng.choice(KEYS)
            if not topic.keyed and rng.random() < 0.3:
                key = None
            value: bytes | None = b"value-%d-" % rng.getrandbits(40) + b"x" * size
            if rng.random() < 0.15:
                value = None
            headers: list[tuple[str, bytes | None]] = []
            if with_headers and rng.random() < 0.6:
                some = [("name", b"val%d" % rng.randrange(9)), ("none", None), ("h2", b"")]
                headers = some[: rng.randint(1, 3)]
            part = topic.parts[number]
            record = Rec(number, part.end, key, value, tuple(headers), _time_of(rng, times))
            producer.send(
                topic.name, value, key=key, headers=headers or None, partition=number,
                timestamp=record.timestamp,
            )  # fmt: skip
            part.live[part.end] = part.ever[part.end] = record
            part.end += 1
            topic.traits |= {"nulls"} if None in (key, value) else set()
            topic.traits.add("headers" if headers else "no headers")
            if record.timestamp < -2_208_988_800_000:
                topic.traits.add("times before 1900")
            if record.timestamp > NOW + DAY:
                topic.traits.add("times to come")
    topic.traits.add("segments" if count * (size + 40) > world.limits.inline_bytes else "entries")


def entries(world: World, topic: Topic, opened: Opened) -> None:
    """Small appends."""
    times = world.rng.choice(TIMES)
    for _ in range(world.rng.choice((1, 2, 6))):
        _send(world, topic, opened, world.rng.randint(1, 4), 1, times)


def segments(world: World, topic: Topic, opened: Opened) -> None:
    """Appends whose rows lie in segments."""
    times = world.rng.choice(TIMES)
    for _ in range(world.rng.choice((1, 1, 3))):
        _send(world, topic, opened, world.rng.choice((8, 20)), 400, times)


def by_turns(world: World, topic: Topic, opened: Opened) -> None:
    times = world.rng.choice(TIMES)
    for turn in range(world.rng.choice((4, 8, 16))):
        _send(world, topic, opened, 3, 1000 if turn % 2 else 1, times)
    topic.traits.add("by turns")


def large(world: World, topic: Topic, opened: Opened) -> None:
    """A segment that no round merges with its neighbours."""
    _send(world, topic, opened, 1, LARGE, world.rng.choice(TIMES))
    topic.traits.add("large files")


def publish(world: World, topic: Topic, opened: Opened) -> None:
    """A writer stores a snapshot, as it does every some entries."""
    opened.log.topic(topic.name)
    opened.log.open_topic(topic.name).stored.publish()
    topic.traits.add("snapshots")


def _grace(world: World) -> int:
    return world.rng.choice((0, 0, DAY))


def maintain(world: World, topic: Topic, opened: Opened) -> None:
    opened.log.maintain(topic.name, grace_ms=_grace(world))
    _maintained(topic)


def _maintained(topic: Topic) -> None:
    topic.maintained(surely=True)
    topic.table_is_due = topic.has_table
    topic.traits.add("maintained")
    if topic.compacts:
        topic.traits.add("compacted")


def killed_maintain(world: World, topic: Topic, opened: Opened) -> None:
    with world.mortal(world.rng.choice((1, 2, 3, 4, 5, 6, 8, 12, 20))) as victim:
        victim.log.maintain(topic.name, grace_ms=_grace(world))
    topic.maintained(surely=False)
    topic.traits.add("a killed round")


def _some_keys(world: World, topic: Topic) -> list[bytes]:
    """Often one of an early record, so that an old file is rewritten and those behind it stay; or
    of a late one, so that a young one is."""
    records = [part.records() for part in topic.parts]
    early = [r.key for some in records for r in some[:6] if r.key is not None]
    late = [r.key for some in records for r in some[-6:] if r.key is not None]
    if early and late and world.rng.random() < 0.7:
        is_early = world.lean == EARLY or world.lean != LATE and world.rng.random() < 0.6
        return [world.rng.choice(early if is_early else late)]
    return world.rng.sample(KEYS, world.rng.choice((1, 2, 3, 12)))


def erase(world: World, topic: Topic, opened: Opened) -> None:
    keys = _some_keys(world, topic)
    opened.log.topic(topic.name).erase(keys=keys)
    _erased(topic, keys, surely=True)


def killed_erase(world: World, topic: Topic, opened: Opened) -> None:
    keys = _some_keys(world, topic)
    with world.mortal(world.rng.choice((1, 2, 3, 4, 6))) as victim:
        victim.log.topic(topic.name).erase(keys=keys)
    _erased(topic, keys, surely=False)
    topic.traits.add("a killed erasure")


def _erased(topic: Topic, keys: list[bytes], *, surely: bool) -> None:
    for part in topic.parts:
        part.drop([o for o, r in part.live.items() if r.key in keys], surely=surely)
    topic.traits.add("erased")
    topic.table = None if not surely else topic.table


def trim(world: World, topic: Topic, opened: Opened) -> None:
    number = world.rng.randrange(len(topic.parts))
    part = topic.parts[number]
    before = _place(world, part)
    opened.log.topic(topic.name).delete_records({number: before})
    part.trim(before)
    topic.traits.add("trimmed")


def _place(world: World, part: Part) -> int:
    """An offset, often one that cuts a file with few records before the end."""
    near = sorted(part.live)[-3:]
    if near and world.rng.random() < 0.6:
        at = world.rng.choice(near) + world.rng.choice((-1, 0, 0, 0, 1))
        return max(part.start, min(at, part.end))
    return world.rng.randint(part.start, part.end)


def retain(world: World, topic: Topic, opened: Opened) -> None:
    """Retention by time. Which files it may let go as a whole is not known here."""
    if topic.compacts:
        return
    handle = opened.log.topic(topic.name)
    old = world.rng.choice((NOW - 20 * DAY, -3_000_000_000_000))
    keep = time.time_ns() // 1_000_000 - old
    handle.alter(config={"retention.ms": str(keep)})
    for part in topic.parts:
        young = [r.offset for r in part.records() if r.timestamp >= old]
        part.start_to = max(part.start, min(young, default=part.end))
        part.drop([o for o in part.live if o < part.start_to], surely=False)
    opened.log.maintain(topic.name, grace_ms=_grace(world))
    handle.alter(config={"retention.ms": "-1"})
    _maintained(topic)
    topic.traits.add("retained")


def grow(world: World, topic: Topic, opened: Opened) -> None:
    if len(topic.parts) >= 5:
        return
    topic.parts += [Part() for _ in range(world.rng.randint(1, 2))]
    opened.log.topic(topic.name).alter(partitions=len(topic.parts))
    topic.traits.add("grown")


def change_policy(world: World, topic: Topic, opened: Opened) -> None:
    topic.compacts = not topic.compacts
    topic.keyed = True
    policy = "compact" if topic.compacts else "delete"
    opened.log.topic(topic.name).alter(config={"cleanup.policy": policy})
    topic.traits.add("policy changed")


def change_table(world: World, topic: Topic, opened: Opened) -> None:
    topic.has_table = not topic.has_table
    topic.table = None
    table = "delta" if topic.has_table else "none"
    opened.log.topic(topic.name).alter(config={"table.format": table})
    topic.traits.add("table changed")


def look(world: World, topic: Topic, opened: Opened) -> None:
    """A program looks where the log ends, and no more."""
    opened.log.topic(topic.name).end_offsets()


def run_consumer(world: World, topic: Topic, opened: Opened) -> None:
    """One that begins now, and goes on later."""
    consumer = opened.log.consumer(auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.assign([(topic.name, p) for p in range(len(topic.parts))])
    got = [record_of(r) for r in consumer.poll(0, max_records=world.rng.choice((1, 10)))]
    world.running.append(Running(opened, topic.name, consumer, got))


def commit(world: World, topic: Topic, opened: Opened) -> None:
    name, rng = world.rng.choice(GROUPS), world.rng
    chosen = {
        (topic.name, number): _place(world, part)
        for number, part in enumerate(topic.parts)
        if rng.random() < 0.8
    }
    if not chosen:
        return
    with opened.log.consumer(group=name, enable_auto_commit=False) as consumer:
        consumer.assign([(topic.name, p) for p in range(len(topic.parts))])
        consumer.commit(chosen)
    world.groups.setdefault(name, {}).update(chosen)
    topic.traits.add("groups")


def reset(world: World, topic: Topic, opened: Opened) -> None:
    name, rng = world.rng.choice(GROUPS), world.rng
    positions = world.groups.setdefault(name, {})
    how: dict[str, Any] = rng.choice(
        ({"to": "earliest"}, {"to": "latest"}, {"to": rng.randint(0, 40)}, {"shift_by": -3})
    )
    if "shift_by" in how and not any(t == topic.name for t, _ in positions):
        how = {"to": "earliest"}
    numbers = range(len(topic.parts))
    if "shift_by" in how:
        numbers = [p for p in numbers if (topic.name, p) in positions]  # type: ignore[assignment]
    opened.log.group(name).reset(topic.name, partitions=list(numbers), dry_run=False, **how)
    for number in numbers:
        part = topic.parts[number]
        at = positions.get((topic.name, number), 0)
        match how:
            case {"to": "earliest"}:
                at = part.start
            case {"to": "latest"}:
                at = part.end
            case {"to": offset}:
                at = offset
            case {"shift_by": by}:
                at += by
        positions[topic.name, number] = max(part.start, min(part.end, at))
    topic.traits |= {"groups", "a group's reset"}


def join(world: World, topic: Topic, opened: Opened) -> None:
    """A group that has members and has not committed yet: of a program that nobody ends."""
    name = f"joined-{len(world.joined)}"
    policy = world.rng.choice(("earliest", "earliest", "latest"))
    own = world.open()
    consumer = own.log.consumer(
        group=name, topics=[topic.name], auto_offset_reset=policy, enable_auto_commit=False
    )
    consumer.poll(0, max_records=2)
    world.keep += [consumer, own]
    world.joined[name] = topic.name, policy
    topic.traits.add("joined without a commit")


def copy(world: World, topic: Topic, opened: Opened) -> None:
    """The log as a whole is copied, or its copy brought up to date."""
    opened.log.copy(str(world.folder / "copy"))
    world.copy = {name: one.kept() for name, one in world.topics.items()}
    for one in world.topics.values():
        one.traits.add("copied")
    with offsetlog.open(str(world.folder / "copy")) as copied:
        for name, one in world.topics.items():
            info = copied.topic(name).table()
            before = world.copied_ends.pop(name, {})
            if info is None or not one.has_table:
                continue
            for number, end in info.end_offsets.items():
                assert end >= before.get(number, 0), (
                    f"the copy's table of {name}-{number} went from {before} back to {end}"
                )
            world.copied_ends[name] = info.end_offsets


Step = Callable[[World, Topic, Opened], None]
STEPS: dict[str, tuple[Step, int]] = {
    "entries": (entries, 16),
    "segments": (segments, 10),
    "by turns": (by_turns, 4),
    "a large file": (large, 3),
    "a snapshot": (publish, 8),
    "a round": (maintain, 10),
    "a killed round": (killed_maintain, 5),
    "an erasure": (erase, 7),
    "a killed erasure": (killed_erase, 2),
    "records deleted": (trim, 6),
    "retention": (retain, 5),
    "partitions added": (grow, 2),
    "another policy": (change_policy, 3),
    "a table or none": (change_table, 2),
    "a look": (look, 4),
    "a consumer": (run_consumer, 6),
    "a commit": (commit, 5),
    "a reset": (reset, 3),
    "a group joins": (join, 2),
    "a copy": (copy, 2),
}
"""Each step, and how often it comes."""
_QUIET = (look, run_consumer, publish, commit, reset, join, copy)
"""These change no record."""


ENDINGS = (
    (),
    ("by turns", "a snapshot", "an erasure"),
    ("entries", "segments", "a snapshot", "an erasure"),
    ("a round", "by turns", "a snapshot", "an erasure", "a look"),
    ("by turns", "by turns", "a snapshot"),
    ("by turns", "by turns", "by turns", "a snapshot", "entries"),
    ("a round", "a look", "entries", "a round"),
    ("entries", "by turns", "a snapshot", "a killed round"),
    ("segments", "entries", "a snapshot", "a killed round"),
    ("by turns", "a large file", "entries", "a snapshot", "a round", "an erasure"),
    ("another policy", "a snapshot", "a round"),
    ("by turns", "a snapshot", "a killed erasure"),
    ("by turns", "a large file", "by turns", "a snapshot", "a killed round"),
    ("a consumer", "an erasure"),
    ("a consumer", "a consumer", "entries", "records deleted"),
    ("an erasure", "a round", "records deleted", "a commit"),
    ("by turns", "an erasure", "a commit", "a commit"),
    ("segments", "an erasure", "a round", "a commit", "a commit"),
    ("another policy", "segments", "a round", "a commit", "records deleted"),
    ("a killed erasure", "another policy", "a round"),
    ("retention", "a table or none", "a round", "records deleted"),
    ("a table or none", "a round", "a killed erasure"),
    ("partitions added", "another policy", "a killed round", "retention"),
)
COPIED = (
    ("a round", "a copy", "records deleted", "a copy"),
    ("a round", "a copy", "an erasure", "a copy", "a round"),
    ("a round", "a copy", "segments", "a round", "a copy"),
)
"""What the last steps of a history may be: files that are rewritten after a state was stored."""
LEANING: dict[str | None, tuple[tuple[str, ...], ...]] = {
    LEAVES: (
        ("by turns", "by turns", "by turns", "by turns", "a snapshot"),
        ("a round", "by turns", "by turns", "by turns", "by turns", "a snapshot", "entries"),
        ("by turns", "by turns", "by turns", "a killed erasure", "by turns", "a snapshot"),
        ("another policy", "by turns", "by turns", "by turns", "by turns", "a snapshot"),
        ("a round", "partitions added", "by turns", "by turns", "by turns", "a snapshot"),
    ),
    EARLY: (
        ("segments", "by turns", "a snapshot", "an erasure"),
        ("a round", "by turns", "segments", "a snapshot", "a killed erasure", "an erasure"),
        ("partitions added", "segments", "segments", "a snapshot", "an erasure"),
        ("by turns", "a large file", "by turns", "a snapshot", "a killed round", "an erasure"),
        ("a table or none", "a round", "by turns", "a large file", "a snapshot", "an erasure"),
    ),
    LATE: (
        ("segments", "a snapshot", "segments", "an erasure", "an erasure"),
        ("a round", "by turns", "a snapshot", "segments", "segments", "an erasure"),
        ("segments", "a large file", "a snapshot", "segments", "a killed erasure", "an erasure"),
        ("retention", "segments", "a snapshot", "segments", "a table or none", "an erasure"),
        ("a round", "segments", "a snapshot", "partitions added", "segments", "an erasure"),
    ),
}
AFTER = ("a commit", "a reset", "a group joins", "a copy", "a consumer")
"""These change nothing of it."""


def make(world: World) -> None:
    """All steps of a history."""
    for _ in range(world.rng.randint(5, 16)):
        [name] = world.rng.choices(list(STEPS), [weight for _, weight in STEPS.values()])
        one_step(world, name, world.a_topic())
    topic = world.a_topic()
    endings = COPIED if topic.has_table and world.rng.random() < 0.3 else ENDINGS
    if world.lean in LEANING:
        endings = LEANING[world.lean]
    steps = world.rng.choice(endings)
    if world.lean is not None:
        steps += tuple(name for name in AFTER if world.rng.random() < 0.6)
    for name in steps:
        one_step(world, name, topic)


def one_step(world: World, name: str, topic: Topic) -> None:
    opened = world.anybody(world.rng)
    step, _ = STEPS[name]
    world.tell(f"{name} ({topic.name}, program {world.programs.index(opened)})")
    step(world, topic, opened)
    world.counts[name] += 1
    world.settle(topic)
    if topic.table_is_due:
        topic.table = [part.records() for part in topic.parts]
        topic.table_starts = [part.start for part in topic.parts]
        topic.table_is_due = False
    if step not in _QUIET:
        topic.changes += 1
    with suppress(OffsetLogError):
        opened.seen[topic.name] = topic.changes
