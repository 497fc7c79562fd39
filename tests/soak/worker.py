"""One process of the campaign, as ``nest`` forks it.

It writes down what it asks for and what it is told, and goes on until it is killed. What may go
wrong with storage is caught and written down; anything else ends it, and the campaign tells."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import offsetlog
from offsetlog import FencedError, OffsetLogError
from offsetlog.testing.history import Recorder

TOPIC, GROUP, PARTITIONS = "orders", "billing", 3


def mark(value: bytes | None) -> str:
    """Records are padded; what tells them apart comes first."""
    return (value or b"").partition(b"|")[0].decode()


class Worker:
    def __init__(self, log: offsetlog.Log, rec: Recorder, told: dict[str, Any]) -> None:
        self.log, self.rec, self.told = log, rec, told
        self.rng = random.Random(told["seed"])

    def _pad(self) -> bytes:
        return b"|" + b"x" * self.rng.choice((5, 5, 300, 90_000))

    # --- producers -------------------------------------------------------------------------

    def produce(self) -> None:
        number = 0
        while True:
            with contextlib.suppress(OffsetLogError), self.log.producer() as producer:
                for _ in range(50):
                    number += 1
                    self._send(producer, number)
                    time.sleep(0.01)

    def _send(self, producer: Any, number: int, **key: Any) -> bool:
        """One send of some records to some partitions; whether it is known to be there."""
        name = self.rec.process if not key else key["batch"][0]
        partitions = range(PARTITIONS) if key else self.rng.sample(range(PARTITIONS), 2)
        marks = {(TOPIC, p): [f"{name}/{number}/{p}/{i}" for i in range(2)] for p in partitions}
        with self.rec.send(marks, **key) as sending:
            pad, futures = self._pad(), []
            for (_, p), values in marks.items():
                futures += [
                    producer.send(TOPIC, value.encode() + pad, partition=p, timestamp=number)
                    for value in values
                ]
            with contextlib.suppress(OffsetLogError):
                producer.flush()  # Each future says what became of its record.
            told = [_outcome(future) for future in futures]
            errors = [said for said in told if isinstance(said, OffsetLogError)]
            if not errors:
                offsets: dict[tuple[str, int], list[int]] = {}
                for said in told:
                    offsets.setdefault((TOPIC, said.partition), []).append(said.offset)
                sending.ok(offsets)
                return True
            if len(errors) == len(told) and not any(e.may_have_landed for e in errors):
                sending.fail()
            else:
                sending.unknown()
            return False

    def keyed(self) -> None:
        """Batches under a caller's key, each until it is sure, from where the note says."""
        note = Path(self.told["note"])
        number = int(note.read_text()) if note.exists() else 1
        app = note.stem
        while True:
            producer = self.log.producer(app_id=app, sequence=number)
            if self._send(producer, number, batch=(app, number)):
                if self.rng.random() < 0.2:
                    time.sleep(0.1)  # A kill that comes here makes the next life send it again.
                number += 1
                fresh = note.with_suffix(".new")
                fresh.write_text(str(number))
                fresh.replace(note)
            time.sleep(0.02)

    # --- consumers -------------------------------------------------------------------------

    def read(self) -> None:
        everything = [(TOPIC, p) for p in range(PARTITIONS)]
        with self.log.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign(everything)
            self.rec.assign(everything)
            while True:
                if self.rng.random() < 0.02:
                    consumer.seek_to_beginning()
                    self.rec.seek(dict.fromkeys(everything, 0))
                self._poll(consumer, None)

    def _poll(self, consumer: Any, group: str | None) -> None:
        with self.rec.poll(group=group) as polling:
            try:
                polling.got(consumer.poll(0.1, max_records=self.rng.randrange(1, 200)))
            except FencedError:
                raise
            except OffsetLogError:
                polling.fail()

    def work(self) -> None:
        """One of the group."""
        while True:
            with contextlib.suppress(OffsetLogError):
                self._member()

    def _member(self) -> None:
        rec = self.rec
        consumer = self.log.consumer(
            GROUP, [TOPIC], auto_offset_reset="earliest", enable_auto_commit=False,
            on_assign=lambda c, p: rec.assign(p, GROUP),
            on_revoke=lambda c, p: rec.revoke(p, GROUP),
            on_lost=lambda c, p: rec.lost(p, GROUP), session_timeout_ms=self.told["session_ms"],
        )  # fmt: skip
        with contextlib.closing(consumer):
            for _ in range(self.rng.randrange(20, 200)):
                self._poll(consumer, GROUP)
                if self.rng.random() < 0.5:
                    self._commit(consumer)

    def _commit(self, consumer: Any) -> None:
        try:
            positions = {tp: consumer.position(tp) for tp in consumer.assignment()}
        except OffsetLogError:
            return
        if not positions:
            return
        with self.rec.commit(GROUP, positions) as committing:
            try:
                consumer.commit(positions)
                committing.ok()
            except OffsetLogError as error:
                committing.unknown() if error.may_have_landed else committing.fail()

    # --- those who look after it -----------------------------------------------------------

    def maintain(self) -> None:
        while True:
            with contextlib.suppress(OffsetLogError):
                self.log.maintain(TOPIC if self.rng.random() < 0.9 else None, grace_ms=0)

    def watch(self) -> None:
        """Asks for ends and positions; resets now and then."""
        while True:
            with contextlib.suppress(OffsetLogError), self.rec.ends() as asking:
                ends = self.log.topic(TOPIC).end_offsets()
                asking.ok({(TOPIC, p): end for p, end in ends.items()})
            with contextlib.suppress(OffsetLogError), self.rec.committed(GROUP) as asking:
                asking.ok(committed(self.log))
            if self.rng.random() < 0.05:
                p = self.rng.randrange(PARTITIONS)
                with (
                    contextlib.suppress(OffsetLogError),
                    self.rec.reset(GROUP, {(TOPIC, p): 0}) as resetting,
                ):
                    self.log.group(GROUP).reset(TOPIC, 0, partitions=[p], dry_run=False)
                    resetting.ok()
            time.sleep(0.05)


def committed(log: offsetlog.Log) -> dict[tuple[str, int], int | None]:
    """The group's positions as a fresh look gives them."""
    found = log.offsets_table.look().group(GROUP).positions
    return {
        (TOPIC, p): found[TOPIC, p].offset if (TOPIC, p) in found else None
        for p in range(PARTITIONS)
    }


def _outcome(future: Any) -> Any:
    try:
        return future.result(120)
    except OffsetLogError as error:
        return error


class FullNowAndThen:
    """``os`` as the local store sees it, on a disk that is full in some tenths of a second: the
    way to a full disk for those who may not mount a small one."""

    def __init__(self, rng: random.Random) -> None:
        self._full = {rng.randrange(20) for _ in range(3)}

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, fd: int, data: Any) -> int:
        if int(time.monotonic() * 10) % 20 in self._full:
            os.write(fd, data[: len(data) // 2])  # A part of it still fits.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(fd, data)


def live(told: dict[str, Any]) -> None:
    """Do what a role does, until somebody ends it."""
    warnings.simplefilter("ignore")
    with contextlib.ExitStack() as stack:
        if told["planted"]:
            from tests.simulation.mutations import planted

            stack.enter_context(planted(told["planted"]))
        rec = stack.enter_context(Recorder(told["history"], mark=mark))
        log = offsetlog.open(told["url"], **told["options"])
        worker = Worker(log, rec, told)
        roles: dict[str, Callable[[], None]] = {
            "produce": worker.produce, "keyed": worker.keyed, "read": worker.read,
            "work": worker.work, "maintain": worker.maintain, "watch": worker.watch,
        }  # fmt: skip
        Path(told["ready"]).touch()
        if told["full_disk"]:
            from offsetlog.storage.local import files as local_files

            local_files.os = FullNowAndThen(worker.rng)  # type: ignore[assignment]
        roles[told["role"]]()
