"""Heartbeats of this process's group members, and the watch over their peers.

Invariants:

1. Beats have a thread of their own, since looks may wait behind a slow append, and a member that
   waits is alive. But a heartbeat stops when its consumer has not polled for
   ``max_poll_interval_ms``: a program that hangs gives its partitions up.
2. A peer is judged by this process's own clock and its own successful looks (``heartbeat``), and
   an expulsion is a fact of the table like any other: nothing here takes a partition.
3. What fails here is tried again at the next turn; it never reaches the consumer's thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from ..errors import OffsetLogError
from ..group.heartbeat import UNWATCHED, Look, Watch, observe
from ..group.requests import Expel
from ..group.state import Group, Member
from .offsets_table import OffsetsTable

LOCAL_WATCH = 0.2
REMOTE_WATCH = 0.5
WATCH_ALL = 16
"""Up to so many peers are watched by everybody, else each watches the next ``WATCH_FEW``."""
WATCH_FEW = 8
MOST_GAP_MS = 1000


class Timing(NamedTuple):
    session_ms: int
    heartbeat_ms: int
    max_poll_ms: int


class Pulse:
    """The heart of one membership: beats, and looks at the others."""

    def __init__(
        self, group: str, member: str, joined: int, client: str, timing: Timing, now: float
    ) -> None:
        self.group, self.member, self.joined, self.client = group, member, joined, client
        self.timing = timing
        self.polled_at = now
        self.next_beat = now
        self.next_watch = now
        self.count = 0
        self.watches: dict[tuple[str, int], Watch] = {}

    def overdue(self, now: float) -> bool:
        return now - self.polled_at > self.timing.max_poll_ms / 1000


class Pulses:
    def __init__(self, table: OffsetsTable) -> None:
        self._table = table
        self._port = table.port
        self._env = table.env
        self._watch_every = LOCAL_WATCH if self._port.is_local else REMOTE_WATCH
        self._hearts: dict[str, Pulse] = {}
        self._lock = threading.Lock()
        self._wakes = {"heartbeats": threading.Event(), "watch": threading.Event()}
        self._threads: dict[str, threading.Thread] = {}
        self._stopped = False

    def add(self, heart: Pulse) -> None:
        """Begin to beat. The first beat is written by the caller, before its join."""
        with self._lock:
            self._hearts[heart.member] = heart
            for name, work in (("heartbeats", self.beats), ("watch", self.watches)):
                if name not in self._threads:
                    self._threads[name] = threading.Thread(
                        target=self._run, args=(name, work), name=f"offsetlog-{name}", daemon=True
                    )
                    self._threads[name].start()
        for wake in self._wakes.values():
            wake.set()

    def remove(self, member: str, forget: bool = True) -> None:
        with self._lock:
            heart = self._hearts.pop(member, None)
        if heart is not None and forget:
            self._forget(member)

    def close(self) -> None:
        self._stopped = True
        for wake in self._wakes.values():
            wake.set()
        for thread in list(self._threads.values()):
            if thread is not threading.current_thread():
                thread.join(timeout=5)

    # --- the threads -----------------------------------------------------------------------

    def _run(self, name: str, work: Callable[[], float]) -> None:
        wake = self._wakes[name]
        while not self._stopped:
            wake.clear()
            with self._lock:
                if not self._hearts:
                    self._threads.pop(name, None)
                    return
            try:
                due = work() - self._env.monotonic()
            except Exception:  # noqa: BLE001 - a heart that stops for one fault is a worker lost
                due = 1.0
            wake.wait(min(max(due, 0.01), 1.0))

    def _all(self) -> list[Pulse]:
        with self._lock:
            return list(self._hearts.values())

    def beats(self) -> float:
        """Send the heartbeats that are due; when the next one is."""
        for heart in (hearts := self._all()):
            self._beat(heart)
        return min((heart.next_beat for heart in hearts), default=0.0)

    def watches(self) -> float:
        """Look at the peers, where it is time; when the next time is."""
        for heart in (hearts := self._all()):
            if self._env.monotonic() >= heart.next_watch:
                self._watch(heart)
        return min((heart.next_watch for heart in hearts), default=0.0)

    def _beat(self, heart: Pulse) -> None:
        now = self._env.monotonic()
        if now < heart.next_beat:
            return
        heart.next_beat = now + heart.timing.heartbeat_ms / 1000
        if heart.overdue(now) or heart.member not in self._hearts:
            return
        heart.count += 1
        try:
            self._port.beat(heart.member, str(heart.count))
        except OffsetLogError:
            heart.next_beat = now + heart.timing.heartbeat_ms / 4000

    def _watch(self, heart: Pulse) -> None:
        every = min(self._watch_every, heart.timing.session_ms / 8000)
        heart.next_watch = self._env.monotonic() + every
        if heart.overdue(self._env.monotonic()):
            return
        try:
            group = self._table.look(every / 2).group(heart.group)
        except OffsetLogError:
            for key, watch in heart.watches.items():
                heart.watches[key] = observe(watch, self._failed(), 0, 0)
            return
        me = group.members.get(heart.member)
        if me is None or me.joined != heart.joined:
            return
        peers = peers_to_watch(group, heart.member)
        heart.watches = {
            key: watch
            for key, watch in heart.watches.items()
            if any(key == (peer.name, peer.joined) for peer in peers)
        }
        silent = [peer for peer in peers if self._is_silent(heart, peer)]
        if silent:
            self._expel(heart, silent)

    def _failed(self) -> Look:
        return Look(int(self._env.monotonic() * 1000), None, failed=True)

    def _is_silent(self, heart: Pulse, peer: Member) -> bool:
        key = peer.name, peer.joined
        gap = max(MOST_GAP_MS, int(4000 * self._watch_every))
        for _ in range(2):
            try:
                at = int(self._env.monotonic() * 1000)
                look = Look(at, self._port.look_at_beat(peer.name))
            except OffsetLogError:
                look = self._failed()
            watch = observe(heart.watches.get(key, UNWATCHED), look, peer.said.session_ms, gap)
            heart.watches[key] = watch
            if watch.expel or not watch.suspected:
                break
        return heart.watches[key].expel

    def _expel(self, heart: Pulse, silent: list[Member]) -> None:
        by = heart.client or heart.member
        try:
            self._table.ask(
                *(
                    Expel(
                        heart.group,
                        peer.name,
                        peer.joined,
                        by,
                        f"no heartbeat came for {peer.said.session_ms} ms",
                    )
                    for peer in silent
                )
            )
        except OffsetLogError:
            return
        for peer in silent:
            heart.watches.pop((peer.name, peer.joined), None)
            self._forget(peer.name)

    def _forget(self, member: str) -> None:
        try:
            self._port.forget_beat(member)
        except OffsetLogError:
            return  # Maintenance sweeps it.


def peers_to_watch(group: Group, member: str) -> list[Member]:
    """The members whose heartbeats this one looks at: all, or the next few in a ring."""
    names = sorted(name for name, m in group.members.items() if m.said.session_ms > 0)
    others = [name for name in names if name > member] + [n for n in names if n < member]
    if len(others) > WATCH_ALL:
        others = others[:WATCH_FEW]
    return [group.members[name] for name in others]
