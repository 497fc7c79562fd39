"""The root of a log: its own file, and which root is at the address.

Invariants:

1. The root's file is created once, by put-if-absent. One of a newer format is refused by name.
2. A log keeps to the root that was there when it was opened, or that it met first: from then on it
   makes no root, and neither reads nor writes another one that is met at the address. A disk may
   be unmounted, or not be mounted on every machine. On a disk the store sees to it with each
   folder that it uses (``Store.keep_to``); elsewhere ``begin`` asks, when something begins.
3. Before its first file is created on a server, a process puts the root's own bytes at the root's
   own name, which must conflict: a log may have been moved to a server that ignores the condition
   of a create. There the same bytes are written over themselves. A new root is probed by a race.
4. A root that is gone is an error, and nothing that is empty; it is found again when it is back.
5. No root is created inside a topic of another one.
"""

from __future__ import annotations

import socket

from offsetlog.engine.env import Env
from offsetlog.errors import InvalidRequestError, StorageError
from offsetlog.format import names, root_file
from offsetlog.logs import get_logger
from offsetlog.storage.offsets.open import FOLDER as OFFSETS_FOLDER
from offsetlog.storage.probe import probe_store, unsafe
from offsetlog.storage.store import Committed, Conflict, Store

TRIES = 5
BEGIN_SECONDS = 5.0
"""For so long a root on a server is believed to be there when something begins."""
logger = get_logger(__name__)


class RootGoneError(StorageError):
    """The root is not in sight. It may be there again later."""


class Root:
    """The root that a store's address means."""

    def __init__(self, store: Store, env: Env) -> None:
        self._store = store
        self._env = env
        self._id: str | None = None
        self._keeps = False
        self.is_fixed = store.stays
        """Whether the address means the same place for as long as the process lives."""
        self._seen: bytes | None = None
        """The root's file when it was last found to be this root's."""
        self._stamp: object = None
        """Of that file, where the store has stamps."""
        self._seen_at = float("-inf")
        self._is_probed: bool | None = False
        """Whether this process probed the storage by a race; None while it does."""
        store.before_creating(self._see_conflict)

    @property
    def id(self) -> str:
        """What the root got when it was created; ``InvalidRequestError`` if there is none."""
        if not self.learn():
            raise self._none()
        assert self._id is not None
        return self._id

    @property
    def is_kept(self) -> bool:
        """Whether it is known which root is kept to."""
        return self._keeps

    def learn(self) -> bool:
        """Keep to the root that is there. Whether there is one, or was one that is kept to: that
        asks nothing."""
        if self._keeps:
            return True
        stamp = self._store.stamp(names.ROOT_FILE) if self._store.has_stamps else None
        data = self._read()
        if data is None:
            return False
        self.keep_to(self._id_in(data))
        self._seen, self._stamp, self._seen_at = data, stamp, self._env.monotonic()
        return True

    def begin(self) -> None:
        """Something begins: raise if the root is not the one that this log keeps to. There may be
        none yet."""
        if self._keeps:
            self.check(BEGIN_SECONDS)
        else:
            self.learn()

    def require(self) -> None:
        """Raise unless there is a root: what is not there is never shown as empty."""
        self.id  # noqa: B018

    def find(self) -> str:
        """The id of the root that is there now, whichever it is."""
        data = self._read()
        if data is None:
            raise self._none()
        return self._id_in(data)

    def _none(self) -> InvalidRequestError:
        return InvalidRequestError(
            f"There is no log at {self._store.url}.",
            "Check the address, or make one by creating its first topic.",
        )

    def keep_to(self, root_id: str) -> None:
        """Accept the root with that id alone, as this or another machine saw it, and create none
        from now on. Asks nothing yet."""
        if self._keeps and self._id != root_id:
            raise AssertionError("a log keeps to one root")
        if self._keeps:
            return
        self._id, self._keeps, self._seen, self._stamp = root_id, True, None, None
        self._store.keep_to(names.ROOT_FILE, self._check)

    def check(self, max_age: float = float("inf")) -> None:
        """Raise unless this root is in sight. What an address on the network means hardly changes
        while the process lives, so it is asked there once, or where that was ``max_age`` seconds
        ago; a disk may go at any time, so it is looked at each time whether the root's file is
        the one that was read."""
        now = self._env.monotonic()
        if self._seen is not None and self.is_fixed and now - self._seen_at < max_age:
            return
        # Before the file is read: one that takes its place meanwhile has another stamp.
        stamp = self._store.stamp(names.ROOT_FILE) if self._store.has_stamps else None
        if stamp is not None and stamp == self._stamp:
            return
        if self._id is None:
            self.require()
            return
        self._check(self._read())
        self._stamp, self._seen_at = stamp, now

    def is_there(self) -> bool:
        """Whether there is a root's file at the address, whatever it says."""
        return self._store.get(names.ROOT_FILE, 0, 1) is not None

    def file(self) -> bytes | None:
        """The root's file as it is now; an error if it is another root's."""
        data = self._read()
        if data is not None and self._id is not None:
            self._check(data)
        return data

    def may_be_created(self) -> bool:
        """Whether there is none yet, and this log may be anywhere. One that can't be used, such as
        that of a copy in the making, is refused."""
        data = None if self._keeps else self._read()
        if data is not None:
            self._id_in(data)
        return not self._keeps and data is None

    def create(self) -> None:
        """Create the root's file, unless it is there."""
        if not self.may_be_created():
            return
        check_surroundings(self._store)
        if self._store.needs_probe:
            self._probe()
        data = root_file.encode(self._env.new_id())
        offer = self._store.offer(data, names.ROOT_FILE)
        error = ""
        try:
            for _ in range(TRIES):
                result = offer.put(names.ROOT_FILE)
                if isinstance(result, Committed | Conflict):
                    logger.info("%s: root %s", self._store.url, type(result).__name__.lower())
                    return
                error = result.error
                if result.waited:
                    break
                self._env.sleep(0.2)
        finally:
            offer.close()
        raise StorageError(f"No answer came to the creation of {self._store.url}: {error}")

    def _probe(self) -> None:
        self._is_probed = None
        try:
            probe_store(self._store)
            self._is_probed = True
        finally:
            self._is_probed = self._is_probed or False

    def _see_conflict(self) -> bool:
        """Put the root's bytes where they are; raise unless that conflicts. False: there is no
        root yet."""
        if self._is_probed is not False:
            return self._is_probed is True
        if not self.learn():
            return False
        self.check(BEGIN_SECONDS)
        assert self._seen is not None
        see_conflict(self._store, names.ROOT_FILE, self._seen, self._env)
        return True

    def _read(self) -> bytes | None:
        return self._store.get(names.ROOT_FILE, 0, root_file.MAX_BYTES + 1)

    def _check(self, data: bytes | None) -> None:
        """Raise unless ``data`` is the file of this root."""
        if data is not None and data == self._seen:
            return
        where = f"{self._store.url}, as the machine {socket.gethostname()} sees it"
        if data is None:
            raise RootGoneError(
                f"The log {self._id} is not at {where}: there is no {names.ROOT_FILE}.",
                "Nothing was written there. Mount its disk on that machine, or put the log where "
                "all machines reach it under one address.",
            )
        there = self._id_in(data)
        if there != self._id:
            raise StorageError(
                f"Another log than {self._id} is at {where}: {there}.",
                "Nothing was written there. All machines must reach the same log under this "
                "address: put it on an object store or a shared disk.",
            )
        self._seen = data

    def _id_in(self, data: bytes) -> str:
        return root_file.decode(data, f"{self._store.url}/{names.ROOT_FILE}")


def see_conflict(store: Store, name: str, data: bytes, env: Env) -> None:
    """Put ``data`` at ``name``, where it is already; raise unless that conflicts."""
    offer = store.offer(data, name)
    error = ""
    try:
        for _ in range(TRIES):
            result = offer.put(name)
            if isinstance(result, Conflict):
                return
            if isinstance(result, Committed):
                raise unsafe(
                    store.url,
                    f"made {name} anew, which was there, where it was told to make it only if "
                    "none is there",
                )
            error = result.error
            if result.waited:
                break
            env.sleep(0.2)
    finally:
        offer.close()
    raise StorageError(
        f"No answer came from {store.url} to whether a file can be made only if none is there: "
        f"{error}",
        "Nothing was written. Try again.",
    )


def check_surroundings(store: Store) -> None:
    """Refuse to create a root inside another root's topic. Only the folders above are asked."""
    for higher, part in store.above():
        try:
            if higher.get(names.ROOT_FILE, 0, 1) is None:
                continue
            is_taken = part == OFFSETS_FOLDER or (
                names.is_topic_folder(part) and any(higher.folders(names.log_folder(part)))
            )
        except Exception:  # noqa: BLE001, S112 - who may not look there can't have a log there
            continue
        if is_taken:
            raise InvalidRequestError(
                f"{store.url} lies in {part!r} of the log at {higher.url}, so it can't be the "
                "root of a log of its own.",
                "Choose a root outside of other logs.",
            )
