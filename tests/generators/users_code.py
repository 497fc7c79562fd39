"""Users' code where it may do harm: callbacks that raise, wait, send, flush and close; forks; two
threads with one consumer; use after close; while several threads send.

1. Every future is done soon, with the same outcome for all who ask, whatever callbacks do.
2. Each record that was acknowledged is there once, under its offset; what failed says so.
3. A callback is called once, with its own future. It is refused what would wait for itself, by one
   error, and what does not wait works there.
4. In a forked child everything is refused by one error and hangs nowhere; the parent goes on.
5. What is closed refuses, and closing again is nothing.
"""

from __future__ import annotations

import os
import random
import select
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

import offsetlog
from offsetlog.engine.append.send_buffer import SendBuffer
from offsetlog.errors import InvalidRequestError, OffsetLogError
from offsetlog.storage import forks
from tests.generators.interrupts import HANGS_AFTER, SOON, limited
from tests.generators.registry import OPERATIONS, Bug
from tests.simulation.planting import patched

STEPS = 30
STEP_KINDS = (
    ["send"] * 6 + ["arrow", "arrow", "keyed", "flush", "poll", "poll", "two_threads", "fork"]
    + ["closed_producer", "closed_consumer", "closed_log"]
)  # fmt: skip


class Users(Exception):
    """Raised by users' code."""


class History:
    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = random.Random(seed)
        self.counts = Counter[str]()
        self.root = str(folder / "log")
        self.log: Any = offsetlog.open(self.root)
        self.log.create_topic("t", partitions=2)
        self.producer = self.log.producer()
        self.consumer = self.log.consumer("g", topics=["t"], auto_offset_reset="earliest")
        self.futures: list[tuple[Any, bytes]] = []
        self.called: Counter[int] = Counter()
        self.faults: list[str] = []
        """What callbacks saw that they should not have."""
        self.sent = self.sequence = 0
        self.lock = threading.Lock()

    def run(self) -> None:
        for _ in range(STEPS):
            what = self.chance.choice(STEP_KINDS)
            self.counts[OPERATIONS] += 1
            getattr(self, f"_{what}")()
        self._others_send()
        self.log.close()
        self._judge()

    # --- callbacks -------------------------------------------------------------------------

    def _value(self) -> bytes:
        with self.lock:
            self.sent += 1
            return b"%d" % self.sent

    def _watch(self, future: Any, value: bytes) -> None:
        """Remember it, and let users' code be called when it is done."""
        number = len(self.futures)
        with self.lock:
            self.futures.append((future, value))
        for i in range(self.chance.choice((0, 1, 1, 2))):
            work = self.chance.choice(
                (self._raises, self._waits, self._sends, self._flushes, self._asks, self._closes)
            )

            def callback(given: Any, key: int = 4 * number + i, work: Any = work) -> None:
                self.called[key] += 1
                if given is not future or not given.done():
                    self.faults.append("a callback got another future, or one that is not done")
                work(given)

            self.counts["callback"] += 1
            self.called[4 * number + i] += 0
            future.add_done_callback(callback)

    def _raises(self, future: Any) -> None:
        raise self.chance.choice((Users, KeyError, OSError))("of the user's code")

    def _waits(self, future: Any) -> None:
        time.sleep(0.01)

    def _sends(self, future: Any) -> None:
        """Sending without waiting is allowed."""
        value = self._value()
        another = self.producer.send("t", value)
        with self.lock:
            self.futures.append((another, value))

    def _asks(self, future: Any) -> None:
        """Its own outcome is known, and another's is not waited for."""
        future.exception()
        self._refused(lambda: self.producer.send("t", self._unsure()).result())

    def _flushes(self, future: Any) -> None:
        self._refused(self.producer.flush)

    def _closes(self, future: Any) -> None:
        with self.log.producer() as another:
            another.send("t", self._unsure())
            self._refused(another.flush)
            # Closing waits for what it sent; here that would be for itself.
            self._refused(another.close)

    def _unsure(self) -> bytes:
        return b"unsure"

    def _refused(self, call: Callable[[], object]) -> None:
        try:
            call()
        except InvalidRequestError as error:
            if "callback" not in str(error):
                self.faults.append(f"another refusal: {error}")
        except OffsetLogError as error:
            self.faults.append(f"another error: {error!r}")

    # --- steps -----------------------------------------------------------------------------

    def _send(self) -> None:
        value = self._value()
        future = self.producer.send("t", value)
        self._watch(future, value)
        if self.chance.random() < 0.4:
            future.result(SOON)

    def _arrow(self) -> None:
        value = self._value()
        table = pa.table({"value": pa.array([value], pa.binary())})
        self._watch(self.producer.send_arrow("t", table), value)

    def _keyed(self) -> None:
        self.sequence += 1
        value = self._value()
        with self.log.producer(app_id="loader", sequence=self.sequence) as producer:
            self._watch(producer.send("t", value), value)

    def _flush(self) -> None:
        self.producer.flush(SOON)

    def _poll(self) -> None:
        self.consumer.poll(0.0)
        if self.chance.random() < 0.5:
            self.consumer.commit()

    def _others_send(self) -> None:
        """All others can do what they could."""

        def send() -> None:
            value = self._value()
            future = self.producer.send("t", value)
            with self.lock:
                self.futures.append((future, value))
            future.result(SOON)

        threads = [threading.Thread(target=send, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SOON)
            assert not thread.is_alive(), "a thread that sends hangs"

    def _two_threads(self) -> None:
        """One of them may be refused; none gets what the other got."""
        polled: list[tuple[int, int]] = []

        def poll() -> None:
            with suppress(InvalidRequestError):
                for _ in range(3):
                    polled.extend((r.partition, r.offset) for r in self.consumer.poll(0.0))

        self._send()
        threads = [threading.Thread(target=poll, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SOON)
            assert not thread.is_alive(), "two threads with a consumer hang"
        assert len(set(polled)) == len(polled), "a record was given twice"
        self.counts["two threads"] += 1

    def _fork(self) -> None:
        """The child tries all that the parent has open."""
        tries: list[Callable[[], object]] = [
            lambda: self.producer.send("t", b"child"),
            lambda: self.producer.flush(),
            lambda: self.consumer.poll(0.0),
            lambda: self.consumer.commit(),
            lambda: self.log.topics(),
            lambda: self.log.groups(),
            lambda: self.log.maintain(),
        ]
        self.chance.shuffle(tries)
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.write(writing, b"".join(_outcome(call) for call in tries))
            finally:
                os._exit(0)
        os.close(writing)
        answer = b""
        while select.select([reading], [], [], SOON)[0] and (some := os.read(reading, 100)):
            answer += some
        os.close(reading)
        if len(answer) < len(tries):
            os.kill(child, 9)
        os.waitpid(child, 0)
        assert answer == b"r" * len(tries), f"a forked child was not refused: {answer!r}"
        self.counts["fork"] += 1

    def _closed_producer(self) -> None:
        producer = self.log.producer()
        value = self._value()
        self._watch(producer.send("t", value), value)
        producer.close()
        producer.close()
        self._is_closed(lambda: producer.send("t", b"late"), lambda: producer.flush())
        assert self.futures

    def _closed_consumer(self) -> None:
        consumer = self.log.consumer("h", topics=["t"])
        consumer.poll(0.0)
        consumer.close()
        consumer.close()
        self._is_closed(lambda: consumer.poll(0.0), lambda: consumer.commit())

    def _closed_log(self) -> None:
        log = offsetlog.open(self.root)
        producer = log.producer()
        value = self._value()
        self._watch(producer.send("t", value), value)
        log.close()
        log.close()
        self._is_closed(lambda: producer.send("t", b"late"), lambda: log.topics())

    def _is_closed(self, *calls: Callable[[], object]) -> None:
        for call in calls[:1]:
            try:
                call()
            except InvalidRequestError:
                self.counts["use after close"] += 1
            else:
                raise AssertionError("what was closed takes more")
        for call in calls[1:]:
            with suppress(InvalidRequestError):
                call()

    # --- judging ---------------------------------------------------------------------------

    def _judge(self) -> None:
        places: dict[tuple[int, int], bytes] = {}
        for future, value in self.futures:
            error = future.exception(SOON)
            assert error is None, f"{value!r} failed, and nothing was let go wrong: {error}"
            at = future.metadata(0) if hasattr(future, "metadata") else future.result()
            places[at.partition, at.offset] = value
        assert len(places) == len(self.futures), "two records got the same offset"
        assert not self.faults, self.faults
        assert set(self.called.values()) <= {1}, "a callback was not called, or twice"
        with offsetlog.open(self.root) as log, log.consumer(auto_offset_reset="earliest") as all_:
            all_.assign([("t", 0), ("t", 1)])
            stored = {}
            while records := all_.poll(0.1):
                stored |= {(r.partition, r.offset): r.value for r in records}
        missing = {place: value for place, value in places.items() if stored.get(place) != value}
        assert not missing, f"acknowledged, and not there: {missing}"
        mine = Counter(value for value in stored.values() if value != b"unsure")
        assert mine == Counter(value for _, value in self.futures), "records were doubled"


def _outcome(call: Callable[[], object]) -> bytes:
    try:
        call()
    except InvalidRequestError as error:
        return b"r" if "forked" in str(error) else b"e"
    except BaseException:  # noqa: BLE001 - one letter is all that the parent needs
        return b"e"
    return b"d"


def history(seed: int, folder: Path) -> Counter[str]:
    made = History(seed, folder)
    with limited(HANGS_AFTER):
        made.run()
    return made.counts


# --- planted bugs --------------------------------------------------------------------------


def _callbacks_unprotected() -> AbstractContextManager[None]:
    """What a callback raises goes into the thread that writes."""

    def call(self: Any, callback: Any) -> None:
        callback()

    return patched([(SendBuffer, "_call", call)])


def _called_twice() -> AbstractContextManager[None]:
    """A callback is called for the batch, and once more."""
    true = SendBuffer._call

    def call(self: Any, callback: Any) -> None:
        true(self, callback)
        true(self, callback)

    return patched([(SendBuffer, "_call", call)])


def _forks_unnoticed() -> AbstractContextManager[None]:
    """A child does what the parent's log lets it do."""
    return patched([(forks, "check", lambda made_in: None)])


PLANTED = {
    "a callback's error is the writing thread's": Bug(_callbacks_unprotected),
    "a callback is called twice": Bug(_called_twice),
    "a forked child is not refused": Bug(_forks_unnoticed),
}
