"""Chains of entries for property tests: made fast from a seed, cut short by hypothesis.

A chain of n entries is a prefix of the one of n + 1 with the same seed, so a failure shrinks to
the fewest entries that show it."""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st

from offsetlog.core.topic.entry import (
    Append,
    Body,
    Collect,
    Compact,
    CompactedTo,
    Configure,
    Create,
    Delete,
    Entry,
    Erase,
    Expire,
    Part,
    Replace,
    ReplacedRun,
    ReplacementPiece,
    SegmentRef,
    Trim,
)
from offsetlog.core.topic.fold import step
from offsetlog.core.topic.state import EMPTY_STATE, TopicState

PARTITIONS = 3


def segment(rng: Random, born: int) -> SegmentRef:
    return SegmentRef(
        born,
        f"{rng.getrandbits(128):032x}",
        rng.randint(100, 10_000),
        rng.randint(8, 99),
        f"{rng.getrandbits(64):016x}",
    )


def parts(rng: Random, tip: int) -> tuple[Part, ...]:
    out = []
    for partition in sorted(rng.choices(range(PARTITIONS + 1), [9, 9, 9, 1], k=rng.randint(1, 3))):
        low = rng.randint(0, 50)
        ref = segment(rng, rng.randint(0, tip)) if rng.random() < 0.5 else None
        out.append(
            Part(
                partition, rng.randint(1, 5), rng.randint(0, 500), low, low + rng.randint(0, 9), ref
            )
        )
    return tuple(out)


def body(rng: Random, state: TopicState) -> Body:
    """A body that its author might have made, from a state that may be old."""
    tip = state.tip
    kind = rng.randrange(18)
    if kind < 10:
        return Append(
            rng.choice("abc"),
            rng.randint(0, tip + 1),
            rng.random() < 0.5,
            rng.randint(0, tip),
            max(
                0,
                rng.choice(
                    (state.created_at_entry, state.created_at_entry, state.created_at_entry, 0)
                ),
            ),
            max(1, state.partitions),
            "0" * 16,
            rng.randint(0, 1),
            parts(rng, tip),
        )
    sees = rng.choice((state.head, state.head, state.head, -1, 0))
    if kind == 10:
        return Create("t", rng.randint(1, PARTITIONS), (), sees)
    if kind == 11:
        policy = rng.choice(("compact", "delete", "compact,delete"))
        return Configure(rng.randint(1, PARTITIONS + 1), (("cleanup.policy", policy),), sees)
    if kind == 12:
        return Delete(sees) if rng.random() < 0.4 else Create("t", PARTITIONS, (), sees)
    if kind == 13:
        return Collect(rng.randint(0, tip + 3))
    if kind == 14:
        callers = tuple(rng.choices("abc", k=rng.choice((0, 0, 1))))
        return Expire(rng.randint(0, tip + 3), callers)
    if kind == 15:
        return Trim(
            tuple(
                (rng.randint(0, PARTITIONS), rng.randint(0, 30)) for _ in range(rng.randint(0, 3))
            )
        )
    return replace(rng, state)


def replace(rng: Random, state: TopicState) -> Replace | Compact | Erase:
    """A replace of some runs of extents that the state holds in memory, or one of the kinds that
    replace too."""
    planned, runs = replaced_runs(rng, state)
    kind = rng.randrange(4)
    ends = [
        (partition, max(0, rng.randint(part.start, part.end + rng.choice((0, 0, 0, 1)))))
        for partition, part in enumerate(state.parts)
        if rng.random() < 0.5
    ]
    if kind == 0:
        compacted = tuple(
            CompactedTo(partition, end, rng.randint(0, 99), rng.randint(0, end))
            for partition, end in ends
        )
        return Compact(planned, runs, compacted)
    if kind == 1:
        keys = tuple(f"{rng.getrandbits(256):064x}" for _ in range(rng.randint(0, 2)))
        return Erase(planned, runs, tuple(ends), "5" * 32, keys, rng.randint(0, 9), "ann@host")
    return Replace(planned, runs)


def replaced_runs(rng: Random, state: TopicState) -> tuple[int, tuple[ReplacedRun, ...]]:
    """Runs of extents that the state holds in memory, and the tip that they were planned at."""
    planned = rng.randint(max(0, state.tip - 4), state.tip)
    runs = []
    for partition, part in enumerate(state.parts):
        extents = list(part.tail)
        if len(extents) < 2 or rng.random() < 0.5:
            continue
        low = rng.randint(0, len(extents) - 2)
        high = rng.randint(low + 1, len(extents) - 1)
        start, end = extents[low].base, extents[high].end
        edges = sorted({start, end, *(rng.randint(start, end) for _ in range(rng.randint(0, 2)))})
        pieces = tuple(
            ReplacementPiece(base, stop, 0, 0, 3, 3, 0)
            if rng.random() < 0.2
            else ReplacementPiece(
                base,
                stop,
                rng.randint(0, stop - base),
                rng.randint(0, 99),
                3,
                rng.randint(3, 60),
                0,
                segment(rng, rng.randint(max(0, state.tip - 3), state.tip)),
            )
            for base, stop in zip(edges, edges[1:], strict=False)
        )
        runs.append(ReplacedRun(partition, start, end, pieces))
    return planned, tuple(runs)


def chain(seed: int, length: int) -> list[Entry]:
    rng = Random(seed)
    state = EMPTY_STATE
    out = [Entry("f" * 32, 1, Create("t", PARTITIONS, (), -1))]
    state, _ = step(state, out[0])
    for number in range(length):
        entry = Entry(f"{number:032x}", number, body(rng, state))
        out.append(entry)
        state, _ = step(state, entry)
    return out


def chains(most: int = 60) -> st.SearchStrategy[list[Entry]]:
    """Histories: what landed, counted or void."""
    return st.builds(chain, st.integers(0, 2**32), st.integers(0, most))
