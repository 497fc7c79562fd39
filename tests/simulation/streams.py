"""Actors that read as Spark does: a checkpoint on disk, micro-batches, and runs that die.

The engine here keeps Spark's order: the offset that a batch ends at is written before the
batch runs, then the reader hears that the one before it is processed; and that the batch ended
is written after it. A batch without that second note is run
again, and must read the very same rows.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from offsetlog.errors import FencedError, OffsetOutOfRangeError
from tests.simulation.groups import GROUP, HandLog, ledger_of
from tests.simulation.ledger import POLITE
from tests.simulation.oracle import Row, rows_of
from tests.simulation.scene import TOPIC, Actor
from tests.simulation.world import Violation

OPTIONS = {"path": "sim", "subscribe": TOPIC, "pollintervalms": "0"}


def stream(actor: Actor) -> None:
    """A query with a checkpoint of its own; each life is a restart of it."""
    # The plugin is no part of the client: only these histories need it.
    from pyspark_offsetlog.options.check import source_options
    from pyspark_offsetlog.source.micro_batches import QueryRun

    actor.await_topic()
    checkpoint = actor.scene.extra.setdefault(("checkpoint", actor.process.role), _Checkpoint())
    start = actor.scene.extra.setdefault(
        ("start", actor.process.role), actor.rng.choice(("earliest", "latest", "group"))
    )
    # Some take the group from each other; others wait, and fail while its owner lives.
    takes = actor.process.role[-1] in "02"
    options = {**OPTIONS, "startingoffsets": start, "group.id": GROUP}
    options |= {"group.takeover": "true"} if takes else {"kafka.client.id": POLITE}
    if actor.rng.random() < 0.5:
        options["maxoffsetspertrigger"] = "4"
    query = _Query(actor, checkpoint, QueryRun(HandLog(actor), source_options(options, True)))  # type: ignore[arg-type]
    for _ in actor.turns(30):
        actor.world.sleep(actor.process, actor.rng.choice((0.0, 0.1, 0.5)))
        query.beat()
        told = actor.do("runs a trigger", query.trigger)
        if told == "fenced":
            actor.say("another query took the group")
            if actor.rng.random() < 0.3:
                return
            actor.world.sleep(actor.process, actor.rng.uniform(0, 1))
        if told in (None, "fenced"):
            # The query failed; it is started again, from its checkpoint.
            query = _Query(
                actor,
                checkpoint,
                QueryRun(HandLog(actor), source_options(options, True)),  # type: ignore[arg-type]
            )


class _Checkpoint:
    """What lies on disk: it outlives every process."""

    def __init__(self) -> None:
        self.ends: list[str] = []
        self.ended = 0
        self.read: dict[int, dict[int, tuple[int, list[Row]]]] = {}


class _Query:
    def __init__(self, actor: Actor, checkpoint: _Checkpoint, run: Any) -> None:
        self._actor = actor
        self._disk = checkpoint
        self._run = run
        self._again = len(checkpoint.ends) > checkpoint.ended

    def beat(self) -> None:
        """What a thread does beside a query."""
        self._run.log.heartbeats.send_due()

    def trigger(self) -> str:
        try:
            return self._trigger()
        except FencedError:
            return "fenced"
        except OffsetOutOfRangeError as error:
            raise Violation(f"{self._actor.name}: {error}") from error

    def _trigger(self) -> str:
        disk = self._disk
        if self._again:
            # Asked anew where the query starts, as Spark does before its first batch ended.
            start = json.loads(disk.ends[-2]) if len(disk.ends) > 1 else self._run.initial()
            self._batch(start, json.loads(disk.ends[-1]))
            self._again = False
            return "again"
        start = json.loads(disk.ends[-1]) if disk.ends else self._run.initial()
        self._note(start)
        end = self._run.next(start, True)
        if end == start:
            return "idle"
        disk.ends.append(json.dumps(end))
        if len(disk.ends) > 1:
            self._run.processed(start)
        self._again = True
        self._batch(start, end)
        self._again = False
        return "batch"

    def _note(self, start: dict[str, Any]) -> None:
        """What has been processed may be committed, by this run as well."""
        ledger, member = ledger_of(self._actor), self._member(start)
        if member is not None:
            ledger.done(member, {int(p): at for p, at in start.get(TOPIC, {}).items()})

    def _member(self, start: dict[str, Any]) -> str | None:
        self._run._open(self._run._parse(start) if self._disk.ends else None)
        owner = self._run._owner
        return None if owner is None else str(owner.member)

    def _batch(self, start: dict[str, Any], end: dict[str, Any]) -> None:
        disk, actor = self._disk, self._actor
        number = len(disk.ends) - 1
        got: dict[int, tuple[int, list[Row]]] = {}
        for r in self._run.ranges(start, end):
            rows: list[Row] = []
            for batch in actor.handle.reader.read(r.partition, r.start, r.end):
                rows += rows_of(batch.table)
            actor.oracle.read(r.partition, r.start, r.end, list(enumerate(rows, r.start)))
            got[r.partition] = (r.start, rows)
        if disk.read.setdefault(number, got) != got:
            raise Violation(f"{actor.name}: batch {number} was run again and read other rows")
        self._follows(number, end, got)
        actor.world.pause(actor.process)
        disk.ended = number + 1
        actor.say(f"ends batch {number}: {end}")

    def _follows(
        self, number: int, end: dict[str, Any], got: dict[int, tuple[int, list[Row]]]
    ) -> None:
        """A batch begins where the last one ended, but for what was reset or is new."""
        before = json.loads(self._disk.ends[number - 1]) if number else {}
        moved = end.get("@from", {}).get(TOPIC, {})
        for partition, (begin, _) in got.items():
            known = before.get(TOPIC, {}).get(str(partition))
            if known is None or begin == known:
                continue
            if str(partition) not in moved or begin != moved[str(partition)]:
                raise Violation(
                    f"{self._actor.name}: batch {number} begins at {begin} of {partition}, the "
                    f"last one ended at {known}"
                )
            self._check_reset(number, int(partition), before["@reset"])
        for partition, known in before.get(TOPIC, {}).items():
            begin = moved.get(partition, known)
            if int(partition) not in got and end[TOPIC][partition] != begin:
                raise Violation(f"{self._actor.name}: batch {number} skips rows of {partition}")

    def _check_reset(self, number: int, partition: int, followed: int) -> None:
        mark = ledger_of(self._actor).truth.group(GROUP).last_reset.get((TOPIC, partition), 0)
        if mark <= followed:
            raise Violation(
                f"{self._actor.name}: batch {number} moves in {partition}, which was not reset"
            )


def founder(actor: Actor) -> None:
    """Creates the topic, and lets it grow."""
    from tests.simulation.upkeep import _alter, _create, create_at_last

    for turn in actor.turns(3):
        actor.world.sleep(actor.process, actor.rng.uniform(0, 3) if turn > 1 else 0.0)
        state = actor.do("looks", actor.handle.refresh)
        if state is None:
            continue
        if not state.alive:
            _create(actor, actor.rng.randint(1, actor.scene.most_partitions))
        elif state.partitions < 4 and actor.rng.random() < 0.5:
            count = state.partitions + 1
            actor.do(f"wants {count} partitions", partial(_alter, actor.handle, partitions=count))
    create_at_last(actor)
