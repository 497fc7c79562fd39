"""The fold: does an entry count, and what does it change.

This is where the promises live. Rules of this module:

1. ``judge`` looks only at the state and the entry, so all programs judge alike.
2. An entry that does not count changes nothing but the tip and the running hash.
3. An append is void, judged in this order, when it is a duplicate, forgotten, meant for a
   topic or partition that is not there, or condemned.
4. create, configure and delete name the last one of these three that their author saw, and
   are void if there is a newer one.
5. A replace is void unless all that it replaces is as its author saw it, and so are a compact and
   an erase, which replace too.
6. trim, collect and expire only raise, clamped to what exists.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from offsetlog.core.topic.entry import (
    Append,
    Collect,
    Compact,
    CompactedTo,
    Configure,
    Counted,
    Create,
    Delete,
    Entry,
    Erase,
    Expire,
    Placed,
    Replace,
    ReplacedRun,
    Trim,
    Verdict,
    Void,
    VoidReason,
    rules_of,
)
from offsetlog.core.topic.extents import EMPTY_TAIL, Extent
from offsetlog.core.topic.senders import SenderState, SenderTable
from offsetlog.core.topic.state import (
    COMPACTIONS_REMEMBERED,
    REPLACES_REMEMBERED,
    Compaction,
    PartitionState,
    Replaced,
    TopicState,
)
from offsetlog.errors import CorruptLogError
from offsetlog.values import MAX_OFFSET


def step(state: TopicState, entry: Entry) -> tuple[TopicState, Verdict]:
    """The state after ``entry`` landed at ``state.tip``, and the word on it."""
    void = judge(state, entry)
    word = void.reason if void is not None else "counted"
    seed = f"{state.hash} {entry.write_id} {word}".encode()
    after = state._replace(tip=state.tip + 1, hash=hashlib.sha256(seed).hexdigest()[:32])
    if void is not None:
        return after, void
    rules = rules_of(entry.body)
    if rules > state.rules:
        after = after._replace(rules=rules)
    return _apply(after, state.tip, entry)


def fold(state: TopicState, entries: Iterable[Entry]) -> TopicState:
    """The state after all of ``entries``."""
    for entry in entries:
        state, _ = step(state, entry)
    return state


# --- what counts ---------------------------------------------------------------------------


def judge(state: TopicState, entry: Entry) -> Void | None:
    """Why ``entry`` would be void at ``state.tip``; None if it counts there."""
    body = entry.body
    if isinstance(body, Append):
        return _judge_append(state, body)
    if isinstance(body, Replace | Compact | Erase):
        return _judge_replace(state, body)
    if isinstance(body, Create | Configure | Delete):
        return _judge_lifecycle(state, body)
    return None


def _judge_append(state: TopicState, body: Append) -> Void | None:
    last = (state.own if body.own else state.callers).get(body.app)
    if last is not None and body.seq <= last.seq:
        return Void(VoidReason.DUPLICATE, f"number {last.seq} counted in entry {last.entry}")
    if body.own and last is None and body.born < state.floor:
        return Void(
            VoidReason.FORGOTTEN, f"born at {body.born}, senders before {state.floor} are gone"
        )
    if not state.alive or body.created_at_entry != state.created_at_entry:
        return Void(VoidReason.DELETED, "the topic that it was meant for was deleted")
    for part in body.parts:
        if part.partition >= state.partitions:
            return Void(
                VoidReason.NO_PARTITION, f"partition {part.partition} of {state.partitions}"
            )
    for part in body.parts:
        if part.segment is not None and part.segment.born < state.horizon:
            return Void(VoidReason.CONDEMNED, f"segment {part.segment.uid} may be deleted")
    return None


def _judge_replace(state: TopicState, body: Replace | Compact | Erase) -> Void | None:
    if not state.alive:
        return Void(VoidReason.DELETED, "the topic was deleted")
    if body.planned_at <= state.replaces_forgotten:
        return Void(VoidReason.STALE, f"planned at {body.planned_at}, too long ago")
    later = [seen for seen in state.replaces if seen.entry >= body.planned_at]
    for run in body.runs:
        if run.partition >= len(state.parts):
            return Void(VoidReason.NO_PARTITION, f"partition {run.partition}")
        part = state.parts[run.partition]
        if run.start < part.start or run.end > part.end:
            return Void(
                VoidReason.STALE, f"partition {run.partition} holds {part.start}-{part.end}"
            )
        for seen in later:
            if seen.partition == run.partition and seen.start < run.end and run.start < seen.end:
                return Void(VoidReason.STALE, f"replaced by entry {seen.entry} meanwhile")
        for piece in run.pieces:
            if piece.segment is not None and piece.segment.born < state.horizon:
                return Void(VoidReason.CONDEMNED, f"segment {piece.segment.uid} may be deleted")
    for partition, end in _ends(body):
        if partition >= len(state.parts) or end > state.parts[partition].end:
            return Void(VoidReason.INVALID, f"partition {partition} does not reach {end}")
    return None


def _ends(body: Replace | Compact | Erase) -> tuple[tuple[int, int], ...]:
    """(partition, offset): up to where an entry says how its partitions are from now on."""
    if isinstance(body, Compact):
        return tuple((compacted.partition, compacted.end) for compacted in body.compacted)
    return body.ends if isinstance(body, Erase) else ()


def _judge_lifecycle(state: TopicState, body: Create | Configure | Delete) -> Void | None:
    if body.expected_head != state.head:
        return Void(VoidReason.SUPERSEDED, f"entry {state.head} changed the topic meanwhile")
    if isinstance(body, Create):
        if state.alive:
            return Void(VoidReason.SUPERSEDED, "the topic exists")
        return None
    if not state.alive:
        return Void(VoidReason.DELETED, "the topic is deleted")
    if isinstance(body, Configure) and body.partitions < state.partitions:
        return Void(VoidReason.INVALID, f"{state.partitions} partitions cannot become fewer")
    return None


# --- what it changes -----------------------------------------------------------------------


def _apply(state: TopicState, number: int, entry: Entry) -> tuple[TopicState, Counted]:
    body = entry.body
    if isinstance(body, Append):
        return _append(state, number, entry, body)
    if isinstance(body, Replace | Erase):
        return _replace(state, number, body.runs), Counted()
    if isinstance(body, Compact):
        return _compacted(_replace(state, number, body.runs), body.compacted), Counted()
    if isinstance(body, Trim):
        return _trim(state, body), Counted()
    if isinstance(body, Create):
        return _create(state, number, body), Counted()
    if isinstance(body, Configure):
        parts = _at_least(state.parts, body.partitions)
        return (
            state._replace(
                head=number, config=body.config, partitions=body.partitions, parts=parts
            ),
            Counted(),
        )
    if isinstance(body, Delete):
        parts = tuple(PartitionState(p.end, p.end, EMPTY_TAIL) for p in state.parts)
        return (
            state._replace(
                head=number, alive=False, created_at_entry=-1, partitions=0, config=(), parts=parts
            ),
            Counted(),
        )
    if isinstance(body, Collect):
        horizon = max(state.horizon, min(body.horizon, number))
        return state._replace(horizon=horizon, collected_at=number), Counted()
    return _expire(state, number, body), Counted()


def _append(
    state: TopicState, number: int, entry: Entry, body: Append
) -> tuple[TopicState, Counted]:
    parts = list(state.parts)
    placed = []
    row = 0
    for part in body.parts:
        before = parts[part.partition]
        base = before.end
        end = base + part.records
        if end > MAX_OFFSET:
            raise CorruptLogError(
                f"Entry {number} of topic {state.topic!r} would end partition {part.partition} at "
                f"offset {end}.",
                "Restore the topic from a backup.",
            )
        extent = Extent(
            part.partition,
            base,
            end,
            part.records,
            part.bytes,
            part.min_ts,
            part.max_ts,
            body.ts_type,
            number,
            entry.write_id if part.segment is None else "",
            row if part.segment is None else 0,
            part.segment,
            False,
        )
        if part.segment is None:
            row += part.records
        tail = before.tail.push(extent)
        parts[part.partition] = PartitionState(before.start, end, tail, *before[3:])
        placed.append(Placed(part.partition, base, part.records))
    sender = SenderState(body.seq, number, entry.time, body.digest)
    own, callers = state.own, state.callers
    if body.own:
        own = own.with_app(body.app, sender)
    else:
        callers = callers.with_app(body.app, sender)
    return state._replace(parts=tuple(parts), own=own, callers=callers), Counted(tuple(placed))


def extents_of_run(run: ReplacedRun, number: int) -> list[Extent]:
    """What holds a run from entry ``number`` on."""
    return [
        Extent(
            run.partition,
            piece.base,
            piece.end,
            piece.records,
            piece.bytes,
            piece.min_ts,
            piece.max_ts,
            piece.ts_type,
            number,
            "",
            0,
            piece.segment,
            True,
        )
        for piece in run.pieces
    ]


def _replace(state: TopicState, number: int, runs: tuple[ReplacedRun, ...]) -> TopicState:
    parts = list(state.parts)
    replaces = state.replaces
    for run in runs:
        extents = extents_of_run(run, number)
        before = parts[run.partition]
        tail = before.tail.replaced(run.start, run.end, extents)
        parts[run.partition] = before._replace(tail=tail)
        replaces += (Replaced(number, run.partition, run.start, run.end),)
    forgotten = state.replaces_forgotten
    if len(replaces) > REPLACES_REMEMBERED:
        dropped = replaces[: len(replaces) - REPLACES_REMEMBERED]
        forgotten = max(forgotten, dropped[-1].entry)
        replaces = tuple(seen for seen in replaces[len(dropped) :] if seen.entry > forgotten)
    return state._replace(parts=tuple(parts), replaces=replaces, replaces_forgotten=forgotten)


def _compacted(state: TopicState, compacted: tuple[CompactedTo, ...]) -> TopicState:
    parts = list(state.parts)
    for partition, end, time, tombstones_from in compacted:
        before = parts[partition]
        passes = before.compactions
        if end > before.compacted_to:
            passes += (Compaction(end, max(time, passes[-1].time if passes else time)),)
        first = max(before.tombstones_from, tombstones_from)
        # Of a pass whose tombstones are all gone nothing needs to be known, but of the last one.
        needed = [done for done in passes[:-1] if done.end > first] + [*passes[-1:]]
        parts[partition] = before._replace(
            compactions=tuple(needed[-COMPACTIONS_REMEMBERED:]), tombstones_from=first
        )
    return state._replace(parts=tuple(parts))


def _trim(state: TopicState, body: Trim) -> TopicState:
    parts = list(state.parts)
    for partition, offset in body.starts:
        if partition < len(parts):
            before = parts[partition]
            start = max(before.start, min(offset, before.end))
            if start > before.start:
                parts[partition] = before._replace(start=start, tail=before.tail.trimmed(start))
    return state._replace(parts=tuple(parts))


def _create(state: TopicState, number: int, body: Create) -> TopicState:
    return state._replace(
        topic=body.topic,
        alive=True,
        created_at_entry=number,
        head=number,
        config=body.config,
        partitions=body.partitions,
        parts=_at_least(state.parts, body.partitions),
    )


def _expire(state: TopicState, number: int, body: Expire) -> TopicState:
    floor = max(state.floor, min(body.floor, number))
    own: SenderTable = state.own
    callers: SenderTable = state.callers
    if floor > state.floor:
        own = own.landed_since(floor)
    if body.callers:
        callers = callers.without(body.callers)
    return state._replace(floor=floor, own=own, callers=callers)


def _at_least(parts: tuple[PartitionState, ...], count: int) -> tuple[PartitionState, ...]:
    return parts + (PartitionState(),) * (count - len(parts))
