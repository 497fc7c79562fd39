"""Ctrl-C at any line of any public call, while other threads of the program are at work.

One ``KeyboardInterrupt`` a call is raised in the thread that makes it, at a random line of the
product or of ``threading.Thread`` outside of cleanup: ``finally``, ``except BaseException``,
``__exit__``, ``__del__``, and what those call. (A line of a trace is also between the end of a
``with`` block and the release of its lock, where no signal is handled: the lines of ``with`` and
``try`` themselves are left out. So is ``threading.Condition``, which gives a lock back twice when
it is interrupted.)

1. Every future that was handed out is done soon, and the other threads go on.
2. Nothing is committed that no poll has given; a reset happened for all partitions or for none.
3. The program can go on: what was interrupted can be done again, by this thread and by others.
4. What was acknowledged is there once, under its offset.
"""

from __future__ import annotations

import ast
import random
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pyarrow as pa

import offsetlog
import pyspark_offsetlog
from offsetlog.client.log import Log
from offsetlog.engine.group.commit_queue import CommitThread
from offsetlog.engine.group.offsets_table import OffsetsTable
from offsetlog.engine.topic.cursor import Cursor
from offsetlog.errors import FencedError, InvalidRequestError, StorageError
from tests.generators.registry import OPERATIONS, Bug
from tests.simulation.planting import patched

STEPS = 40
SOON = 20.0
HANGS_AFTER = 45.0
"""A history takes a second or two."""
PRODUCT = tuple(
    str(Path(str(package.__file__)).parent) for package in (offsetlog, pyspark_offsetlog)
)
STEP_KINDS = (
    ["send"] * 4 + ["flush", "arrow", "keyed", "keyed", "poll", "poll", "poll_arrow", "commit"]
    + ["commit_async", "seek", "committed", "join", "leave", "reset", "lag", "groups", "create"]
    + ["topics", "ends", "trim", "alter", "maintain", "verify", "positions", "close_producer"]
    + ["reopen"]
)  # fmt: skip
READS = ["poll", "poll", "poll_arrow", "commit", "commit_async"]
"""Of these some histories have many more."""
STARTS = 0.2
"""Of the interrupts so many come while a thread is started, if one is: few lines among many."""
THREAD_LINES = 40


class Hung(BaseException):
    """Something waits for ever."""


# --- where a line may be interrupted -------------------------------------------------------


@cache
def cleanup_lines(file: str) -> frozenset[int]:
    """Lines of a file that are cleanup, or at which a ``with`` block begins and ends."""
    lines: set[int] = set()

    def add(nodes: list[ast.stmt]) -> None:
        for node in nodes:
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))

    for node in ast.walk(ast.parse(Path(file).read_text())):
        if isinstance(node, ast.Try):
            lines.add(node.lineno)
            add(node.finalbody)
            for handler in node.handlers:
                caught = handler.type
                if caught is None or getattr(caught, "id", "") == "BaseException":
                    add(handler.body)
        elif isinstance(node, ast.With):
            lines.update(range(node.lineno, node.body[0].lineno))
        elif isinstance(node, ast.FunctionDef) and node.name in ("__exit__", "__del__"):
            add(node.body)
    return frozenset(lines)


@cache
def is_traced(code: CodeType) -> bool:
    if code.co_filename == threading.__file__:
        return code.co_qualname.startswith("Thread.")
    return code.co_filename.startswith(PRODUCT)


def in_cleanup(frame: FrameType | None, root: FrameType) -> bool:
    while frame is not None and frame is not root:
        if is_traced(frame.f_code) and frame.f_lineno in cleanup_lines(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False


class Interrupt:
    """Calls something and interrupts it at its n-th line, or at the n-th that starts a thread."""

    def __init__(self, line: int, *, of_threads: bool = False) -> None:
        self._left = line
        self._of_threads = of_threads
        self.is_armed = True
        self.where = ""
        """Empty if it ended before."""

    def call(self, work: Callable[[], Any]) -> Any:
        root = sys._getframe()

        def trace(frame: FrameType, event: str, argument: object) -> Any:
            if not is_traced(frame.f_code):
                return None
            if event == "line" and self.is_armed and not self.where:
                is_counted = frame.f_code.co_filename == threading.__file__ or not self._of_threads
                self._left -= is_counted
                if is_counted and self._left <= 0 and not in_cleanup(frame, root):
                    name = Path(frame.f_code.co_filename).name
                    self.where = f"{name}:{frame.f_lineno}"
                    raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            return work()
        finally:
            sys.settrace(before)


# --- the other threads ---------------------------------------------------------------------


class Busy:
    """A thread that sends, or one that works in a group, until it is told to end."""

    def __init__(self, log: Log, work: Callable[[Log, Busy], None]) -> None:
        self.rounds = 0
        self.failure: BaseException | None = None
        self.stop = threading.Event()
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self._work = work
        self.thread = threading.Thread(target=self._run, args=(log,), daemon=True)
        self.thread.start()

    def _run(self, log: Log) -> None:
        try:
            self._work(log, self)
        except BaseException as error:  # noqa: BLE001 - told to whoever waits
            self.failure = error

    def end(self) -> None:
        self.stop.set()
        self.thread.join(SOON)
        assert not self.thread.is_alive(), "another thread hangs"
        if self.failure is not None:
            raise self.failure


def sends(log: Log, busy: Busy) -> None:
    name = log.env.new_id().encode()
    with log.producer() as producer:
        while not busy.stop.wait(0.002):
            value = b"%b-%d" % (name, busy.rounds)
            at = producer.send("t", value).result(SOON)
            busy.acknowledged[at.partition, at.offset] = value
            busy.rounds += 1


def works(log: Log, busy: Busy) -> None:
    with log.consumer("others", ["t"], auto_offset_reset="earliest") as consumer:
        while not busy.stop.wait(0.005):
            try:
                consumer.poll(0.0)
                consumer.commit()
            except FencedError:
                pass  # It was expelled, by a reset.
            except StorageError as error:
                # The interrupted thread was writing for both, and each may ask again.
                assert error.may_have_landed and "interrupted" in str(error), error
                continue
            busy.rounds += 1


# --- the program ---------------------------------------------------------------------------


class History:
    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = random.Random(seed)
        self.root = (
            str(folder / "log") if self.chance.random() < 0.5 else f"memory://interrupts-{seed}"
        )
        self.kinds = STEP_KINDS + READS * self.chance.choice((0, 0, 6))
        self.counts = Counter[str]()
        self.trace: list[str] = []
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.pending: list[tuple[Any, bytes]] = []
        """Futures that were handed out, with their values."""
        self.given: dict[int, set[int]] = {0: {0}, 1: {0}}
        """Where the group may stand in each partition: behind what polls gave, and where seeks and
        resets put it."""
        self.consumer: Any = None
        self.sequence = self.sent = 0

    def run(self) -> None:
        self.log: Any = offsetlog.open(self.root)
        self.log.create_topic("t", partitions=2)
        self.producer = self.log.producer()
        self._others()
        try:
            for _ in range(STEPS):
                self._step()
            self._end()
        except Exception as error:
            raise AssertionError(self.trace[-8:]) from error
        except Hung as error:
            raise AssertionError(("something hangs", self.trace[-8:])) from error
        finally:
            for busy in self.others:
                busy.stop.set()

    def _others(self) -> None:
        self.others = [Busy(self.log, sends), Busy(self.log, works)]

    def _step(self) -> None:
        what = self.chance.choice(self.kinds)
        self.counts[OPERATIONS] += 1
        if self.chance.random() < STARTS:
            line = self.chance.randint(1, THREAD_LINES)
            interrupt = self.interrupt = Interrupt(line, of_threads=True)
        else:
            interrupt = self.interrupt = Interrupt(int(10 ** self.chance.uniform(0, 3.3)))
        try:
            interrupt.call(getattr(self, f"_{what}"))
        except KeyboardInterrupt:
            self.counts["interrupt"] += 1
        except InvalidRequestError as error:
            # What an earlier interrupt left half done may be refused, but not for ever.
            self.trace.append(f"{what}: {error}")
            self.counts["refused"] += 1
        self.trace.append(f"{what} {interrupt.where}")
        if interrupt.where:
            if what.startswith("poll") and self.consumer is not None:
                # As a program does whose loop ends by Ctrl-C.
                with suppress(FencedError):
                    self.consumer.commit()
            self._goes_on()

    def _goes_on(self) -> None:
        """Others, and this thread, can do all that they could."""
        rounds = [busy.rounds for busy in self.others]
        pending, self.pending = self.pending, []
        for future, value in pending:
            error = future.exception(SOON)
            assert error is None, error
            self._note(future, value)
        value = self._value()
        at = self.log.producer().send("t", value).result(SOON)
        self.acknowledged[at.partition, at.offset] = value
        for busy, before in zip(self.others, rounds, strict=True):
            wait = threading.Event()
            for _ in range(int(SOON / 0.005)):
                if busy.rounds > before or busy.failure is not None:
                    break
                wait.wait(0.005)
            assert busy.failure is None, busy.failure
            assert busy.rounds > before, "another thread hangs"
        self._check_committed()

    def _check_committed(self) -> None:
        for (_, p), position in self.log.offsets_table.look().group("g").positions.items():
            assert position.offset in self.given[p], f"{position.offset} of {p} was not given"

    # --- sending ---------------------------------------------------------------------------

    def _value(self) -> bytes:
        self.sent += 1
        return b"mine-%d" % self.sent

    def _note(self, future: Any, value: bytes) -> None:
        at = future.result() if hasattr(future, "__len__") else future.metadata(0)
        self.acknowledged[at.partition, at.offset] = value

    def _send(self) -> None:
        value = self._value()
        future = self.producer.send("t", value)
        self.pending.append((future, value))
        if self.chance.random() < 0.7:
            future.result(SOON)

    def _flush(self) -> None:
        self.producer.flush(SOON)

    def _arrow(self) -> None:
        value = self._value()
        future = self.producer.send_arrow("t", pa.table({"value": pa.array([value], pa.binary())}))
        self.pending.append((future, value))
        future.result(SOON)

    def _keyed(self) -> None:
        """As a loader that is interrupted and run again."""
        if self.chance.random() < 0.6:
            self.sequence += 1
        values = [b"keyed-%d-%d" % (self.sequence, i) for i in range(3)]
        with self.log.producer(app_id="loader", sequence=self.sequence) as producer:
            futures = [producer.send("t", value) for value in values]
            producer.flush()
        for future, value in zip(futures, values, strict=True):
            self._note(future, value)

    def _close_producer(self) -> None:
        try:
            self.producer.close()
        finally:
            self.interrupt.is_armed = False
            self.producer = self.log.producer()

    # --- consuming -------------------------------------------------------------------------

    def _mine(self) -> Any:
        if self.consumer is None:
            self._join()
        return self.consumer

    def _join(self) -> None:
        if self.consumer is not None:
            return
        consumer = self.log.consumer("g", auto_offset_reset="earliest", enable_auto_commit=False)
        if self.chance.random() < 0.5:
            consumer.subscribe(["t"])
        else:
            consumer.assign([("t", 0), ("t", 1)])
        self.consumer = consumer

    def _leave(self) -> None:
        consumer, self.consumer = self.consumer, None
        if consumer is not None:
            consumer.close()

    def _poll(self) -> None:
        consumer = self._mine()
        for record in consumer.poll(0.0, self.chance.choice((1, 5, 50))):
            self.given[record.partition].add(record.offset + 1)

    def _poll_arrow(self) -> None:
        for tp, table in self._mine().poll_arrow(0.0, 7).items():
            self.given[tp.partition].add(table.column("offset")[-1].as_py() + 1)

    def _commit(self) -> None:
        with suppress(FencedError):
            self._mine().commit()

    def _commit_async(self) -> None:
        with suppress(FencedError):
            self._mine().commit_async()

    def _seek(self) -> None:
        consumer = self._mine()
        held = sorted(consumer.assignment())
        if held:
            tp = self.chance.choice(held)
            to = self.chance.randrange(5)
            self.given[tp.partition].add(to)
            with suppress(InvalidRequestError):
                consumer.seek(tp, to)

    def _committed(self) -> None:
        self._mine().committed()

    # --- groups ----------------------------------------------------------------------------

    def _reset(self) -> None:
        to = self.chance.randrange(3)
        for partition in (0, 1):
            self.given[partition].add(to)
        group = self.log.group("g")
        before = self.log.offsets_table.look().group("g").resets
        try:
            group.reset("t", to=to, dry_run=False)
        finally:
            state = self.log.offsets_table.look().group("g")
            marks = {mark for _, mark in state.last_reset.items() if mark > before}
            assert len(marks) <= 1, "a part of a reset"

    def _lag(self) -> None:
        self.log.group("others").lag()

    def _groups(self) -> None:
        self.log.groups()

    def _positions(self) -> None:
        self.log.positions()

    # --- topics ----------------------------------------------------------------------------

    def _create(self) -> None:
        self.log.create_topic(f"more-{self.sent}")

    def _topics(self) -> None:
        self.log.topics()

    def _ends(self) -> None:
        self.log.topic("t").end_offsets()

    def _trim(self) -> None:
        self.log.topic("t").delete_records({0: 0})

    def _alter(self) -> None:
        self.log.topic("t").alter(config={"segment.bytes": self.chance.randrange(10**6, 10**7)})

    def _maintain(self) -> None:
        self.log.maintain(grace_ms=0)

    def _verify(self, log: Log | None = None) -> None:
        for report in (log or self.log).verify():
            # The folder is there of a topic whose creation was interrupted.
            faults = [fault for fault in report.faults if "there is no entry 0" not in fault]
            assert not faults, faults

    # --- the end ---------------------------------------------------------------------------

    def _reopen(self) -> None:
        """Closing may be interrupted, and is then done again."""
        self.interrupt.is_armed = False
        self._stop_others()
        try:
            self.interrupt.is_armed = True
            self.log.close()
        finally:
            self.interrupt.is_armed = False
            self.log.close()
            self.consumer, self.log = None, offsetlog.open(self.root)
            self.producer = self.log.producer()
            self._others()

    def _stop_others(self) -> None:
        for busy in self.others:
            busy.end()
            self.acknowledged.update(busy.acknowledged)

    def _end(self) -> None:
        self._goes_on()
        self._stop_others()
        if self.consumer is not None:
            self.consumer.close()
        self.log.close()
        with offsetlog.open(self.root) as log:
            there: dict[tuple[int, int], bytes] = {}
            with log.consumer() as consumer:
                consumer.assign([("t", 0), ("t", 1)])
                consumer.seek_to_beginning()
                while found := consumer.poll(0.0):
                    there.update({(r.partition, r.offset): r.value or b"" for r in found})
            wrong = {
                at: (value, there.get(at), [at for at, other in there.items() if other == value])
                for at, value in self.acknowledged.items()
                if there.get(at) != value
            }
            assert not wrong, wrong
            twice = [v for v, n in Counter(there.values()).items() if n > 1]
            assert not twice, f"twice there: {twice}"
            self._verify(log)


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """What hangs is interrupted, where this is the main thread."""

    def ring(*_: object) -> None:
        stacks = [
            "".join(traceback.format_stack(frame)[-6:]) for frame in sys._current_frames().values()
        ]
        raise Hung("\n".join(stacks))

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def history(seed: int, folder: Path) -> Counter[str]:
    made = History(seed, folder)
    with limited(HANGS_AFTER):
        made.run()
    return made.counts


# --- planted bugs --------------------------------------------------------------------------


def _no_way_back() -> AbstractContextManager[None]:
    """Positions stay where a poll that was interrupted had gathered to."""
    return patched([(Cursor, "rewind", lambda self, before=None: None)])


def _lock_left() -> AbstractContextManager[None]:
    """A lock is given back by who gets through."""
    true = OffsetsTable.look

    def look(self: Any, *given: Any) -> Any:
        self._turn_taken = getattr(self, "_turn_taken", None) or threading.RLock()
        assert self._turn_taken.acquire(timeout=2.0), "somebody keeps the lock"
        found = true(self, *given)
        self._turn_taken.release()
        return found

    return patched([(OffsetsTable, "look", look)])


def _thread_waited_for() -> AbstractContextManager[None]:
    """A thread is waited for that was never started."""

    def wake(self: Any) -> None:
        if self.runner is None:
            self.runner = mark = object()
            self._spawn(partial(self._run, mark), self._name)

    return patched([(CommitThread, "wake", wake), (sys.modules[__name__], "HANGS_AFTER", 8.0)])


PLANTED = {
    "an interrupted poll moves the positions": Bug(_no_way_back),
    "an interrupted thread keeps a lock": Bug(_lock_left),
    "a thread that was never started is waited for": Bug(_thread_waited_for),
}
