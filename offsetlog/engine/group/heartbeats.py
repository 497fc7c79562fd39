"""Heartbeats of this process's group members, and the watch over their peers.

Invariants:

1. Heartbeats are sent by a thread of their own, since a look may wait behind a slow append, and a
   member that waits is alive. But they stop when the consumer has not polled for
   ``max_poll_interval_ms``: a program that hangs gives its partitions up.
2. A peer's silence is measured by this process's own clock and its own successful looks
   (``core.group.heartbeat``), and an expulsion is a fact of the table like any other: nothing here
   takes a partition.
3. Every member watches all others, so it does not matter how many are killed at once, or which.
   A few peers are read one by one, and the others by listing all heartbeats once a second. A
   listing may be stale or coarse, so it never expels: a peer that seems silent for half of its
   session timeout is read itself from then on.
4. What fails here is tried again at the next turn; it never reaches the consumer's thread.
5. A member whose consumer is gone, since Python collected it, leaves its group at the next turn.
   It is found by a weak reference: nothing runs while something is collected.
6. A query that owns its group alone beats, and watches nobody: it costs one write for each beat.
   Only another query that wants the group looks whether it lives (``wait_until_silent``).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from offsetlog.core.group.heartbeat import UNWATCHED, HeartbeatReading, PeerWatch, observe
from offsetlog.core.group.requests import ExpelRequest, LeaveRequest
from offsetlog.core.group.state import GroupState, Member
from offsetlog.engine.group.offsets_table import OffsetsTable
from offsetlog.errors import OffsetLogError, StorageError
from offsetlog.logs import get_logger

logger = get_logger(__name__)

LOCAL_WATCH_SECONDS = 0.2
REMOTE_WATCH_SECONDS = 0.5
WATCH_EACH = 8
"""So many peers are read one by one, besides those whose silence is in doubt."""
LIST_SECONDS = 1.0
"""At most; an eighth of the session timeout, if that is shorter."""
MAX_GAP_MS = 1000
NO_LIMIT_MS = 2**62
CLOSE_SECONDS = 5.0
"""How long closing waits for a thread that is in the middle of a request."""


class HeartbeatTiming(NamedTuple):
    session_ms: int
    heartbeat_ms: int
    max_poll_ms: int = NO_LIMIT_MS


class Heartbeat:
    """One membership: when it beats, and what it knows of its peers."""

    def __init__(
        self,
        group: str,
        member: str,
        joined: int,
        client: str,
        timing: HeartbeatTiming,
        now: float,
        owner: Callable[[], object | None] = object,
        alone: bool = False,
    ) -> None:
        """``owner`` gives who polls; None once it is gone."""
        self.owner = owner
        self.group, self.member, self.joined, self.client = group, member, joined, client
        self.timing = timing
        self.has_peers = not alone
        self.polled_at = now
        self.next_beat = now
        self.next_watch = now
        self.count = 0
        self.watches: dict[tuple[str, int], PeerWatch] = {}
        self.next_list = now
        self.listed: set[tuple[str, int]] = set()
        """The peers that are watched by listings, for now."""
        self.doubted: set[tuple[str, int]] = set()
        """The peers that were listed until they seemed silent, and are read since."""

    def overdue(self, now: float) -> bool:
        return now - self.polled_at > self.timing.max_poll_ms / 1000


class Heartbeats:
    def __init__(self, table: OffsetsTable) -> None:
        self._table = table
        self._port = table.port
        self._env = table.env
        self._watch_every = LOCAL_WATCH_SECONDS if self._port.is_local else REMOTE_WATCH_SECONDS
        self._hearts: dict[str, Heartbeat] = {}
        self._changed = threading.Condition()
        """Guards the hearts and the names of the threads; notified when a thread ends."""
        self._wakes = {"heartbeats": threading.Event(), "watch": threading.Event()}
        self._running: set[str] = set()
        self._stopped = False

    def add(self, heart: Heartbeat) -> None:
        """Begin to beat. The first beat is written by the caller, before its join."""
        with self._changed:
            self._hearts[heart.member] = heart
            for name, work in (("heartbeats", self.send_due), ("watch", self.watch_due)):
                if name not in self._running and (heart.has_peers or work == self.send_due):
                    self._start(name, work, heart)
        for wake in self._wakes.values():
            wake.set()

    def _start(self, name: str, work: Callable[[], float], heart: Heartbeat) -> None:
        self._running.add(name)
        try:
            self._env.spawn(partial(self._run, name, work), f"offsetlog-{name}")
        except RuntimeError as error:
            self._running.discard(name)
            del self._hearts[heart.member]
            raise StorageError(
                f"The thread of the {name} of {heart.member} can't be started: {error}.",
                "End some threads and try again; the group expels it after its session timeout.",
            ) from None

    def remove(self, member: str) -> None:
        with self._changed:
            heart = self._hearts.pop(member, None)
        if heart is not None:
            self._delete(member)

    def close(self) -> None:
        self._stopped = True
        for wake in self._wakes.values():
            wake.set()
        with self._changed:
            self._changed.wait_for(lambda: not self._running, timeout=CLOSE_SECONDS)

    def leave_all(self) -> None:
        """Let all members that are left leave their groups, as the log is closed."""
        try:
            self._leave(self._all())
        except Exception as error:  # noqa: BLE001 - they are expelled after their session timeouts
            logger.warning("The members of a closed log did not leave: %s", str(error))

    # --- the threads -----------------------------------------------------------------------

    def _run(self, name: str, work: Callable[[], float]) -> None:
        wake = self._wakes[name]
        while True:
            wake.clear()
            with self._changed:
                if self._stopped or not self._hearts:
                    self._running.discard(name)
                    self._changed.notify_all()
                    return
            try:
                due = work() - self._env.monotonic()
            except Exception:  # noqa: BLE001 - a thread that ends is a member that is expelled
                logger.warning("The thread of the %s failed, and goes on", name, exc_info=True)
                due = 1.0
            wake.wait(min(max(due, 0.01), 1.0))

    def _all(self) -> list[Heartbeat]:
        with self._changed:
            return list(self._hearts.values())

    def send_due(self) -> float:
        """Send the heartbeats that are due; when the next one is."""
        for heart in (hearts := self._all()):
            self._beat(heart)
        return min((heart.next_beat for heart in hearts), default=0.0)

    def watch_due(self) -> float:
        """Look at the peers, where it is time; when the next time is."""
        gone = [heart for heart in self._all() if heart.owner() is None]
        if gone:
            self._leave(gone)
        for heart in (hearts := [heart for heart in self._all() if heart.has_peers]):
            if self._env.monotonic() >= heart.next_watch:
                self._watch(heart)
        idle_until = self._env.monotonic() + LIST_SECONDS
        return min((heart.next_watch for heart in hearts), default=idle_until)

    def _beat(self, heart: Heartbeat) -> None:
        now = self._env.monotonic()
        if now < heart.next_beat:
            return
        heart.next_beat = now + heart.timing.heartbeat_ms / 1000
        is_alive = heart.owner() is not None and not heart.overdue(now)
        if not is_alive or heart.member not in self._hearts:
            return
        heart.count += 1
        try:
            self._port.beat(heart.member, str(heart.count))
        except OffsetLogError as error:
            logger.info("The heartbeat of %s was not written: %s", heart.member, str(error))
            heart.next_beat = now + heart.timing.heartbeat_ms / 4000

    def _leave(self, hearts: list[Heartbeat]) -> None:
        """One append for all; nothing is committed."""
        if hearts:
            self._table.ask(
                *(LeaveRequest(heart.group, heart.member, heart.joined, 0) for heart in hearts)
            )
        for heart in hearts:
            logger.info("%s left %s: nobody polls for it any more", heart.member, heart.group)
            self.remove(heart.member)

    def _watch(self, heart: Heartbeat) -> None:
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
        heart.watches = {key: heart.watches[key] for key in peers if key in heart.watches}
        heart.listed &= peers.keys()
        heart.doubted &= peers.keys()
        for key in [key for key in peers if key not in heart.watches]:
            if len(heart.watches) - len(heart.listed | heart.doubted) >= WATCH_EACH:
                heart.listed.add(key)
            heart.watches[key] = UNWATCHED
        self._watch_listed(heart, peers)
        silent = [
            peer
            for key, peer in peers.items()
            if key not in heart.listed and self._is_silent(heart, peer)
        ]
        for key in [key for key in heart.doubted if heart.watches[key].silent_ms == 0]:
            heart.doubted.discard(key)
            heart.listed.add(key)
            heart.watches[key] = UNWATCHED
        if silent:
            self._expel(heart, silent)

    def _watch_listed(self, heart: Heartbeat, peers: dict[tuple[str, int], Member]) -> None:
        now = self._env.monotonic()
        if not heart.listed or now < heart.next_list:
            return
        heart.next_list = now + min(LIST_SECONDS, heart.timing.session_ms / 8000)
        try:
            beats = self._port.list_beats()
        except OffsetLogError:
            for key in heart.listed:
                heart.watches[key] = observe(heart.watches[key], self._failed(), 0, 0)
            return
        now_ms = int(self._env.monotonic() * 1000)
        for key in sorted(heart.listed):
            session_ms = peers[key].subscription.session_ms
            # So small that three eighths of the timeout, more than a heartbeat, are left to look
            # closer, however long this watcher slept.
            gap = min(4000, max(session_ms // 8, 1))
            watch = observe(heart.watches[key], HeartbeatReading(now_ms, beats.get(key[0])), 0, gap)
            heart.watches[key] = watch
            if watch.silent_ms * 2 >= session_ms:
                self._read_from_now_on(heart, key)

    def _read_from_now_on(self, heart: Heartbeat, key: tuple[str, int]) -> None:
        """Its silence counts on, from a heartbeat that was read and not only listed."""
        try:
            beat = self._port.look_at_beat(key[0])
        except OffsetLogError:
            return
        heart.watches[key] = heart.watches[key]._replace(beat=beat)
        heart.listed.discard(key)
        heart.doubted.add(key)

    def _failed(self) -> HeartbeatReading:
        return HeartbeatReading(int(self._env.monotonic() * 1000), None, failed=True)

    def _is_silent(self, heart: Heartbeat, peer: Member) -> bool:
        key = peer.name, peer.joined
        gap = max(MAX_GAP_MS, int(4000 * self._watch_every))
        for _ in range(2):
            try:
                now_ms = int(self._env.monotonic() * 1000)
                look = HeartbeatReading(now_ms, self._port.look_at_beat(peer.name))
            except OffsetLogError:
                look = self._failed()
            watch = observe(
                heart.watches.get(key, UNWATCHED), look, peer.subscription.session_ms, gap
            )
            heart.watches[key] = watch
            if watch.expel or not watch.suspected:
                break
        return heart.watches[key].expel

    def _expel(self, heart: Heartbeat, silent: list[Member]) -> None:
        by = heart.client or heart.member
        try:
            self._table.ask(
                *(
                    ExpelRequest(
                        heart.group,
                        peer.name,
                        peer.joined,
                        by,
                        f"no heartbeat came for {peer.subscription.session_ms} ms",
                    )
                    for peer in silent
                )
            )
        except OffsetLogError as error:
            logger.info("Silent members of %s were not expelled yet: %s", heart.group, str(error))
            return
        logger.warning(
            "%s expelled %s from %s: no heartbeat came",
            by,
            ", ".join(peer.name for peer in silent),
            heart.group,
        )
        for peer in silent:
            heart.watches.pop((peer.name, peer.joined), None)
            self._delete(peer.name)

    def _delete(self, member: str) -> None:
        with contextlib.suppress(OffsetLogError):  # Maintenance sweeps it.
            self._port.forget_beat(member)


def wait_until_silent(table: OffsetsTable, group: str, owner: Member) -> bool:
    """Whether a query that owns its group has stopped: False as soon as it beats again. Its silence
    is waited for, or known by the storage's clock. True also for one that never beat, and once it
    owns the group no more."""
    port, env = table.port, table.env
    if port.look_at_beat(owner.name) is None:
        return True
    session_ms = owner.subscription.session_ms
    now_ms = port.storage_now()
    age = None if now_ms is None else port.beat_age_ms(owner.name, now_ms)
    if age is not None and age >= session_ms:
        return True
    every = LOCAL_WATCH_SECONDS if port.is_local else REMOTE_WATCH_SECONDS
    watch = UNWATCHED
    while not watch.expel:
        now_owns = table.look(every / 2).group(group).owner
        if now_owns is None or (now_owns.name, now_owns.joined) != (owner.name, owner.joined):
            return True
        at_ms = int(env.monotonic() * 1000)
        try:
            look = HeartbeatReading(at_ms, port.look_at_beat(owner.name))
        except OffsetLogError:
            look = HeartbeatReading(at_ms, None, failed=True)
        if watch != UNWATCHED and not look.failed and look.beat != watch.beat:
            return False
        watch = observe(watch, look, session_ms, MAX_GAP_MS)
        env.sleep(every)
    return True


def peers_to_watch(group: GroupState, member: str) -> dict[tuple[str, int], Member]:
    """The other members that send heartbeats. Those that follow this one in the ring of all come
    first, so that every member has peers that read its heartbeat itself."""
    names = sorted(name for name, m in group.members.items() if m.subscription.session_ms > 0)
    others = [name for name in names if name > member] + [n for n in names if n < member]
    return {(name, group.members[name].joined): group.members[name] for name in others}
