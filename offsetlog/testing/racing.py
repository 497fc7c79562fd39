"""Processes that race for names, and others that watch them.

1. Each member is a real process of its own, started afresh (never forked), with a store of its
   own; for a filesystem in memory, where processes share nothing, it is a thread.
2. Orders and answers go through a pipe; secrets never through a command line.
3. Every wait has a deadline, and a member that does not answer is ended.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection, Pipe
from typing import Any, NamedTuple

from offsetlog.errors import OffsetLogError, StorageError
from offsetlog.storage.store import Committed, Conflict, Store

SIZES = (300, 4_096, 70_000, 300_000)
_HEAD = 64
_ANSWER_SECONDS = 60.0
# Not ``-m``: that would load this module twice, with two kinds of every class.
_MEMBER = """
import sys
from multiprocessing.connection import Connection
from offsetlog.testing.racing import serve
serve(Connection(int(sys.argv[1])))
"""


class Landed(NamedTuple):
    """What one member's put at one name came to."""

    place: int
    outcome: str
    """``committed``, ``conflict`` or ``unknown``."""
    serial: int
    """Number of the payload that was put, of this member."""


class Payload(NamedTuple):
    """Bytes that tell whose they are and whether they are whole."""

    member: int
    serial: int


def payload(member: int, serial: int, size: int) -> bytes:
    body = f"{member:08d}{serial:08d}{size:016d}".encode()
    body += bytes(itertools.islice(itertools.cycle(range(member % 7, 251)), 256)) * (size // 256)
    return hashlib.blake2b(body, digest_size=_HEAD // 2).hexdigest().encode() + body


def parse(data: bytes) -> Payload | None:
    """Whose the bytes are; None if they are not whole."""
    body = data[_HEAD:]
    if hashlib.blake2b(body, digest_size=_HEAD // 2).hexdigest().encode() != data[:_HEAD]:
        return None
    return Payload(int(body[:8]), int(body[8:16]))


def name_of(folder: str, place: int) -> str:
    return f"{folder}/{place:08d}"


def open_by(opener: str, url: str, options: Mapping[str, Any]) -> Store:
    """The store that ``module:function`` gives for a URL."""
    module, _, function = opener.partition(":")
    store: Store = getattr(importlib.import_module(module), function)(url, **options)
    return store


# -- what a member does


def race(
    store: Store, *, folder: str, member: int, first: int, last: int, start: float, until: float
) -> dict[str, Any]:
    """Try each name once, the first at the moment ``start``: as fast as it can, the same bytes at
    the next name after a conflict."""
    landed: list[Landed] = []
    faults: list[str] = []
    serial = first
    offer = None
    began = time.monotonic()
    for place in range(first, last):
        if time.time() > until:
            break
        if offer is None:
            serial = place
            data = payload(member, serial, SIZES[place % len(SIZES)])
            offer = store.offer(data, name_of(folder, place))
        if place == first:  # All have their bytes ready, and a connection.
            _sleep_until(start)
            began = time.monotonic()
        result = offer.put(name_of(folder, place))
        outcome = type(result).__name__.lower()
        landed.append(Landed(place, outcome, serial))
        if isinstance(result, Conflict):
            found = store.get(name_of(folder, place))
            if found is None or parse(found) is None:
                seen = "no file" if found is None else f"{len(found)} bytes that are not whole"
                faults.append(f"after a conflict at name {place} a loser read {seen}")
        if isinstance(result, Committed):
            offer.close()
            offer = None
    if offer is not None:
        offer.close()
    return {"landed": landed, "faults": faults, "seconds": time.monotonic() - began}


def watch(store: Store, *, folder: str, first: int, last: int, until: float) -> dict[str, Any]:
    """Look for one name after another while it is raced for; what is there must be whole."""
    faults: list[str] = []
    looks = 0
    pause = 0.0005 if store.is_local else 0.0
    place = first
    while place < last and time.time() < until:
        found = store.get(name_of(folder, place))
        looks += 1
        if found is None:
            time.sleep(pause)
            continue
        if parse(found) is None:
            faults.append(f"name {place} was read torn ({len(found)} bytes)")
        place += 1
    return {"looks": looks, "seen": place - first, "faults": faults}


def overwrite(store: Store, *, name: str, times: int, until: float) -> dict[str, Any]:
    """Replace one file over and over; a read after a put must give what was put."""
    faults: list[str] = []
    done = 0
    for serial in range(1, times + 1):
        if time.time() > until:
            break
        store.put(name, payload(0, serial, SIZES[serial % len(SIZES)]), durable=serial % 2 == 0)
        found = parse(store.get(name) or b"")
        if found is None or found.serial != serial:
            faults.append(f"after version {serial} was put, a read gave {found}")
        done = serial
    return {"faults": faults, "done": done}


def reread(store: Store, *, name: str, last: int, until: float) -> dict[str, Any]:
    """Read one file that is being replaced: never gone, never torn, never an older one again."""
    faults: list[str] = []
    reads, newest = 0, 0
    while newest < last and time.time() < until:
        data = store.get(name)
        reads += 1
        found = parse(data) if data is not None else None
        if found is None:
            seen = "nothing" if data is None else f"{len(data)} bytes that are not whole"
            faults.append(f"while it was replaced, a reader saw {seen}")
        elif found.serial < newest:
            faults.append(f"a reader saw version {found.serial} after version {newest}")
        else:
            newest = found.serial
    return {"faults": faults, "reads": reads}


_COMMANDS: dict[str, Callable[..., dict[str, Any]]] = {
    "race": race,
    "watch": watch,
    "overwrite": overwrite,
    "reread": reread,
}


def _sleep_until(moment: float) -> None:
    rest = moment - time.time()
    if rest > 0:
        time.sleep(rest)


def serve(pipe: Connection) -> None:
    """A member's life: open the store, then one order after another until the pipe closes."""
    try:
        opener, url, options = pipe.recv()
        store = _answered(pipe, lambda: open_by(opener, url, options))
        if store is None:
            return
        while True:
            command, about = pipe.recv()
            _answered(pipe, lambda: _COMMANDS[command](store, **about), send=True)  # noqa: B023
    except (EOFError, OSError):
        return


def _answered(pipe: Connection, work: Callable[[], Any], send: bool = False) -> Any:
    try:
        result = work()
    except OffsetLogError as error:
        pipe.send(("failed", str(error)))
    except Exception as error:  # noqa: BLE001
        # A store of a user's own may raise anything; its text may hold a secret.
        pipe.send(("failed", f"{type(error).__name__} escaped from the store"))
    else:
        pipe.send(("done", result if send else None))
        return result
    return None


# -- the one who gives orders


class Crew:
    """A number of members that have opened the store."""

    def __init__(
        self, count: int, opener: str, url: str, options: Mapping[str, Any], *, threads: bool
    ) -> None:
        self._pipes: list[Connection] = []
        self._children: list[subprocess.Popen[bytes]] = []
        try:
            for _ in range(count):
                self._pipes.append(self._thread() if threads else self._process())
            for pipe in self._pipes:
                pipe.send((opener, url, dict(options)))
            for member in range(count):
                self._answer(member, time.time() + _ANSWER_SECONDS)
        except BaseException:
            self.close()
            raise

    def _thread(self) -> Connection:
        ours, theirs = Pipe()
        threading.Thread(target=serve, args=(theirs,), daemon=True).start()
        return ours

    def _process(self) -> Connection:
        ours, theirs = Pipe()
        path = os.pathsep.join(entry for entry in sys.path if entry) or os.getcwd()
        self._children.append(
            subprocess.Popen(
                [sys.executable, "-P", "-c", _MEMBER, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": path},
            )
        )
        theirs.close()
        return ours

    def order(
        self, orders: list[tuple[str, dict[str, Any]]], until: float, first: int = 0
    ) -> list[dict[str, Any]]:
        """One order for each member from ``first`` on (or fewer); their answers."""
        self.begin(orders, first)
        return self.answers(len(orders), until, first)

    def begin(self, orders: list[tuple[str, dict[str, Any]]], first: int = 0) -> None:
        """Give orders whose answers are asked for later."""
        for pipe, given in zip(self._pipes[first:], orders, strict=False):
            pipe.send(given)

    def answers(self, count: int, until: float, first: int = 0) -> list[dict[str, Any]]:
        return [self._answer(m, until + _ANSWER_SECONDS) for m in range(first, first + count)]

    def _answer(self, member: int, until: float) -> dict[str, Any]:
        pipe = self._pipes[member]
        try:
            if not pipe.poll(max(0.0, until - time.time())):
                raise StorageError(f"Process {member} of the check did not answer in time.")
            kind, said = pipe.recv()
        except EOFError:
            raise StorageError(f"Process {member} of the check ended early.") from None
        if kind == "failed":
            raise StorageError(f"In process {member} of the check: {said}")
        return said or {}

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for child in self._children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=5)
            if child.poll() is None:
                child.kill()
                child.wait()
