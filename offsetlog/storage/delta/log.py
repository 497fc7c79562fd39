"""The files of a Delta table's log: versions, checkpoints, and the note that names the newest.

Invariants:

1. A version is put by put-if-absent, so exactly one author has it.
2. A checkpoint is durable before the note that names it, and that before anything goes.
3. Versions are deleted only below a stored checkpoint. Such a name is free again, and what lies
   there later is no part of the table.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple, Protocol

from offsetlog.core import strict_json
from offsetlog.core.decode import field, from_json, integer
from offsetlog.errors import CorruptLogError, OffsetLogError
from offsetlog.format import delta_log
from offsetlog.format.delta_log import LAST_CHECKPOINT, LOG, MOST_LOG_BYTES, DeltaState
from offsetlog.storage.pool import Pool
from offsetlog.storage.store import FileInfo, PutResult, Store

MOST_NOTE_BYTES = 1024 * 1024
READERS = 8
_NOTE_VERSION = field("version", integer())


class Readers(Protocol):
    """What asks for several files at once."""

    def map(self, call: Callable[[Any], Any], items: Iterable[Any], /) -> Iterator[Any]: ...


class Surroundings(NamedTuple):
    """What of the outside world is not storage; a simulation gives its own."""

    now_ms: Callable[[], int]
    monotonic: Callable[[], float]
    new_id: Callable[[], str]
    """32 hex digits that nobody else has."""
    readers: Callable[[], AbstractContextManager[Readers]]

    def new_uuid(self) -> uuid.UUID:
        return uuid.UUID(self.new_id())


REAL = Surroundings(
    lambda: time.time_ns() // 1_000_000,
    time.monotonic,
    lambda: uuid.uuid4().hex,
    partial(Pool, READERS, "offsetlog-delta"),
)


class _InTurn:
    """Readers of one thread: the caller's own."""

    map = staticmethod(map)


IN_TURN = REAL._replace(readers=lambda: nullcontext(_InTurn()))
"""For a log whose few versions are read one after another."""


class DeltaLog:
    """The log of the table in a folder; the root's own where ``folder`` is empty."""

    def __init__(self, store: Store, folder: str, surroundings: Surroundings = REAL) -> None:
        self.store = store
        self._surroundings = surroundings
        self.folder = f"{folder}/{LOG}" if folder else LOG
        self._note = f"{self.folder}/{LAST_CHECKPOINT}"

    def name(self, version: int) -> str:
        return f"{self.folder}/{version:020d}.json"

    def version(self, version: int) -> bytes | None:
        """The file of a version; None where there is none."""
        return self.store.get(self.name(version), 0, MOST_LOG_BYTES + 1)

    def put(self, version: int, text: bytes) -> PutResult:
        """Put a version where nobody has put it."""
        name = self.name(version)
        offer = self.store.offer(text, name)
        try:
            return offer.put(name)
        finally:
            offer.close()

    def files(self) -> Iterator[tuple[FileInfo, delta_log.LogFile]]:
        """The versions and parts of checkpoints that are there, in any order."""
        for info in self.store.list(self.folder):
            file = delta_log.log_file(info.name)
            if file is not None:
                yield info, file

    # --- the state -------------------------------------------------------------------------

    def replayed(self) -> DeltaState:
        """The newest checkpoint that reads whole, and the versions after it."""
        versions: set[int] = set()
        checkpoints: dict[tuple[int, int], dict[int, str]] = {}
        for info, file in self.files():
            if not file.parts:
                versions.add(file.version)
            elif info.size:
                checkpoints.setdefault((file.version, file.parts), {})[file.part] = info.name
        whole = [key for key, parts in checkpoints.items() if len(parts) == key[1]]
        broken: CorruptLogError | None = None
        for version, count in sorted(whole, reverse=True):
            try:
                names = [name for _, name in sorted(checkpoints[version, count].items())]
                return self._since(self._read_checkpoint(version, names), versions)
            except CorruptLogError as error:
                broken = broken or error
        if 0 in versions or broken is None:
            return self._since(DeltaState(), versions)
        raise broken

    def _read_checkpoint(self, version: int, names: Sequence[str]) -> DeltaState:
        parts = []
        for name in names:
            data = self.store.get(name, 0, delta_log.MOST_CHECKPOINT_BYTES + 1)
            if data is None or len(data) > delta_log.MOST_CHECKPOINT_BYTES:
                raise CorruptLogError(f"{name} is gone, or of more bytes than a checkpoint has.")
            parts.append(data)
        return delta_log.read_checkpoint(parts, version, names[0])

    def _since(self, state: DeltaState, versions: set[int]) -> DeltaState:
        """A state moved on to the newest version."""
        after = state.version + 1
        end = next(v for v in range(after, after + len(versions) + 1) if v not in versions)
        with self._surroundings.readers() as pool:
            for version, data in zip(
                range(after, end), pool.map(self.version, range(after, end)), strict=True
            ):
                if data is None:
                    raise CorruptLogError(f"{self.name(version)} is gone.")
                self._step(state, data)
        self.forward(state)
        beyond = min((v for v in versions if v > state.version), default=None)
        if beyond is not None or state.version < 0:
            missing = self.name(state.version + 1)
            raise CorruptLogError(
                f"{missing} is missing"
                + (f", though version {beyond} is there." if beyond is not None else "."),
                "A power cut or a partial copy does that: restore the table from a backup.",
            )
        return state

    def forward(self, state: DeltaState) -> DeltaState:
        """Apply what came since."""
        while (data := self.version(state.version + 1)) is not None:
            self._step(state, data)
        return state

    def _step(self, state: DeltaState, data: bytes) -> None:
        where = self.name(state.version + 1)
        state.apply(delta_log.actions_of(data, where), where)

    # --- checkpoints -----------------------------------------------------------------------

    def note(self) -> bytes | None:
        return self.store.get(self._note, 0, MOST_NOTE_BYTES)

    def newest_checkpoint(self) -> int:
        """The version that Delta's own note names; -1 when there is none that can be read. It is
        written before anything below it is deleted."""
        data = self.note()
        if data is None:
            return -1
        try:
            return from_json(_NOTE_VERSION, data, self._note, MOST_NOTE_BYTES)
        except OffsetLogError:
            return -1

    def store_checkpoint(
        self, version: int, data: bytes, rows: int, files: int, tags: Mapping[str, str]
    ) -> None:
        """What readers of Delta begin with, unless somebody stored a newer one."""
        newest = self.newest_checkpoint()
        if newest > version and self.store.info(self.name(newest)) is not None:
            return
        self.store.put(f"{self.folder}/{version:020d}.checkpoint.parquet", data)
        note = {
            "version": version,
            "size": rows,
            "sizeInBytes": len(data),
            "numOfAddFiles": files,
            "tags": {key: value for key, value in tags.items() if value},
        }
        self.store.put(self._note, strict_json.dumps(note))

    def removed_files(self, version: int) -> dict[str, int]:
        """When files were removed, by path, as the checkpoint of a version says."""
        name = f"{self.folder}/{version:020d}.checkpoint.parquet"
        data = self.store.get(name, 0, delta_log.MOST_CHECKPOINT_BYTES + 1)
        return {} if data is None else delta_log.removed_files(data, name)

    def drop_old(self, before_ms: int) -> None:
        """Delete what lies below the newest checkpoint that was stored before a time by the
        storage's clock: what is younger can still be read from there on."""
        files = list(self.files())
        old = [f.version for info, f in files if f.parts == 1 and info.modified_ms <= before_ms]
        if old:
            self.store.delete(info.name for info, f in files if f.version < max(old))
