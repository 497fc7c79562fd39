"""A Delta log as ``verify`` looks at it: every version, every checkpoint, and the note.

Invariants:

1. The log is read from its oldest file on. Each checkpoint on the way is compared with what the
   log says there, and believed only where the log before it was cleaned.
2. What a reader of Delta can do without is a cache: a checkpoint beside versions that say the same,
   and the note.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from offsetlog.core.decode import field, from_json, integer, nullable
from offsetlog.errors import CorruptLogError, OffsetLogError
from offsetlog.format import delta_log
from offsetlog.format.delta_log import LAST_CHECKPOINT, LOG, Action, DeltaState
from offsetlog.storage.offsets.check import CacheFault
from offsetlog.storage.store import Store

TRIES = 3
MOST_NOTE_BYTES = 1024 * 1024
_VERSION = field("version", integer())
_SIZES = [field(name, nullable(integer())) for name in ("size", "sizeInBytes", "numOfAddFiles")]


class GoneError(CorruptLogError):
    """A file that was there, or ought to be. It may have been cleaned since."""


class LogCheck:
    """One look at one log. ``begun`` is told the state that a checkpoint gives where the log before
    it was cleaned, and what the file of that version holds; ``applied`` each version, and the state
    after it."""

    def __init__(
        self,
        store: Store,
        prefix: str,
        begun: Callable[[DeltaState, bytes | None, str], None],
        applied: Callable[[DeltaState, bytes, Sequence[Action], str], None],
    ) -> None:
        self._store = store
        self._log = f"{prefix}{LOG}"
        self._begun = begun
        self._applied = applied
        self.faults: list[str] = []
        self.caches: list[CacheFault] = []
        self.files = self.bytes = 0
        self._sizes: dict[int, tuple[int, int, int] | None] = {}
        """Of each version with a checkpoint that is as it ought to be: rows, bytes and files; None
        where others wrote it, who may count in another way."""

    def run(self) -> DeltaState | None:
        """The newest state; None where there is no log."""
        # Read first, so that it is not only newer than the log.
        note = self._store.get(f"{self._log}/{LAST_CHECKPOINT}", 0, MOST_NOTE_BYTES + 1)
        state = self._replay()
        if state is not None and note is not None:
            self._check_note(note)
        return state

    def _replay(self) -> DeltaState | None:
        versions: dict[int, str] = {}
        checkpoints: dict[int, dict[tuple[int, int], str]] = {}
        for info in self._store.list(self._log):
            parsed = delta_log.log_file(info.name)
            if parsed is not None and parsed.parts:
                parts = checkpoints.setdefault(parsed.version, {})
                parts[parsed.parts, parsed.part] = info.name
            elif parsed is not None:
                versions[parsed.version] = info.name
        if not versions and not checkpoints:
            return None
        state = DeltaState() if 0 in versions else None
        broken: list[CacheFault] = []
        for version in sorted(versions.keys() | checkpoints.keys()):
            if state is not None and version == state.version + 1 and version in versions:
                self._apply(state, versions[version])
            elif state is None or version > state.version + 1:
                state = None  # The log before it was cleaned, or has a hole.
            if version in checkpoints:
                name = versions.get(version)
                state = self._at_checkpoint(state, version, name, checkpoints[version], broken)
        if state is None or state.version < max(versions, default=0):
            self.faults += [fault.text for fault in broken]
            raise GoneError(
                f"{self._log} has a hole below version {max(versions, default=0)}, and no "
                "checkpoint above it that can be read.",
                "Restore the table from a backup.",
            )
        self.caches += broken
        return state

    def _apply(self, state: DeltaState, name: str) -> None:
        data = self.get(name, delta_log.MOST_LOG_BYTES)
        actions = delta_log.actions_of(data, name)
        state.apply(actions, name)
        self._applied(state, data, actions, name)

    def _at_checkpoint(
        self,
        state: DeltaState | None,
        version: int,
        its_version: str | None,
        parts: dict[tuple[int, int], str],
        broken: list[CacheFault],
    ) -> DeltaState | None:
        """The state with which the log goes on behind a checkpoint."""
        for count in {count for count, _ in parts}:
            files = [parts[key] for key in sorted(parts) if key[0] == count]
            if len(files) < count:
                continue  # Its writer was ended in the middle: no reader takes it.
            try:
                data = [self.get(name, delta_log.MOST_CHECKPOINT_BYTES) for name in files]
                stored = delta_log.read_checkpoint(data, version, files[0])
            except GoneError:
                raise
            except OffsetLogError as error:
                broken += [CacheFault(name, error.message) for name in files]
                continue
            whole = stored.is_ours
            if state is not None and stored.meaning(whole) != state.meaning(whole):
                text = f"{files[0]} is not what the log says at version {version}"
                broken += [CacheFault(name, text) for name in files]
                continue
            rows = sum(delta_log.row_count(part, files[0]) for part in data)
            sizes = rows, sum(map(len, data)), len(stored.adds)
            self._sizes[version] = sizes if whole else None
            if state is None:
                state = stored
                at = None
                if its_version is not None:
                    at = self.get(its_version, delta_log.MOST_LOG_BYTES)
                self._begun(state, at, its_version or files[0])
        return state

    def _check_note(self, data: bytes) -> None:
        """The note is what readers of Delta begin with."""
        name, text = f"{self._log}/{LAST_CHECKPOINT}", ""
        try:
            version = from_json(_VERSION, data, name, MOST_NOTE_BYTES)
            told = [from_json(size, data, name, MOST_NOTE_BYTES) for size in _SIZES]
            if version not in self._sizes:
                text = f"names the checkpoint of version {version}, which is not there or broken"
            elif tuple(told) != (self._sizes[version] or tuple(told)):
                text = f"says other sizes than the checkpoint of version {version} has"
        except OffsetLogError as error:
            self.caches.append(CacheFault(name, error.message))
        if text:
            self.caches.append(CacheFault(name, f"{name} {text}"))

    def get(self, name: str, most: int) -> bytes:
        """A file that is there."""
        data = self._store.get(name, 0, most + 1)
        if data is None:
            raise GoneError(f"{name} is missing.", "Restore the table from a backup.")
        if len(data) > most:
            raise CorruptLogError(f"{name} holds more than {most} bytes.")
        self.files += 1
        self.bytes += len(data)
        return data
