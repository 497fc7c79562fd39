"""``verify`` of the offsets table as a Delta table: its log, its checkpoints, its files, its facts.

Invariants:

1. The log is read from its oldest file on. Each checkpoint on the way is compared with what the
   log says there, and believed only where the log before it was cleaned.
2. A table in use gives no false alarm: what is gone is looked for again in a newer version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from offsetlog.core.decode import field, from_json, from_value, integer, plain
from offsetlog.core.group.facts import Fact
from offsetlog.errors import CorruptLogError, OffsetLogError
from offsetlog.format import delta_log
from offsetlog.format import facts_arrow as fact_rows
from offsetlog.format.delta_log import LAST_CHECKPOINT, LOG, Action, DeltaState
from offsetlog.storage.offsets.check import (
    CacheFault,
    Progress,
    TableCheck,
    folding_faults,
    missing_facts,
    state_file_fault,
)
from offsetlog.storage.offsets.port import STATE_FILE
from offsetlog.storage.store import Store

TRIES = 3
MOST_NOTE_BYTES = 1024 * 1024
_VERSION = field("version", integer())


class _GoneError(CorruptLogError):
    """A file that was there, or ought to be. It may have been cleaned since."""


class DeltaCheck:
    """One look at one table, of which nothing but its place is known."""

    def __init__(
        self,
        store: Store,
        prefix: str,
        inside: Callable[[str], str],
        check_ours: Callable[[DeltaState], None],
        progress: Progress,
    ) -> None:
        """``prefix`` is the table's folder, ``inside`` gives the name of a path in its log, and
        ``check_ours`` raises for a table that is another's or of another shape."""
        self._store = store
        self._prefix = prefix
        self._inside = inside
        self._check_ours = check_ours
        self._progress = progress
        self._reset()

    def _reset(self) -> None:
        self._faults: list[str] = []
        self._caches: list[CacheFault] = []
        self._counts: dict[int, int] = {}
        self._whole: set[int] = set()
        """Versions with a checkpoint that is as it ought to be."""
        self._files = self._bytes = 0

    def run(self) -> TableCheck | None:
        """None where there is no table."""
        for again in range(TRIES):
            self._reset()
            try:
                return self._run()
            except _GoneError as error:
                if again == TRIES - 1:
                    self._faults.append(str(error))
            except OffsetLogError as error:
                self._faults.append(str(error))
                break
        return self._check(-1, 0)

    def _check(self, version: int, facts: int) -> TableCheck:
        faults, caches = tuple(self._faults), tuple(self._caches)
        return TableCheck(version, facts, self._files, self._bytes, faults, caches)

    def _run(self) -> TableCheck | None:
        name, note = f"{self._prefix}{STATE_FILE}", f"{self._prefix}{LOG}/{LAST_CHECKPOINT}"
        stored = self._store.get(name, 0, fact_rows.MOST_CHECKPOINT_BYTES + 1)
        noted = self._store.get(note, 0, MOST_NOTE_BYTES)
        state = self._replay(stored)
        if state is None:
            return None
        self._check_ours(state)
        self._check_note(note, noted)
        facts: list[Fact] = []
        for done, (path, add) in enumerate(state.adds.items()):
            self._progress("offsets", done, len(state.adds))
            facts += self._facts_of(path, add)
        self._progress("offsets", len(state.adds), len(state.adds))
        if not self._faults:
            self._faults += missing_facts(facts, self._counts)
            self._faults += folding_faults(facts, state.version)
        if not self._faults:
            table_id = str(state.metadata.get("id"))
            reason = state_file_fault(stored, name, table_id, facts, state.version)
            if reason is not None:
                self._caches.append(CacheFault(name, f"{name}: {reason}"))
        return self._check(state.version, len(facts))

    # --- the log ---------------------------------------------------------------------------

    def _replay(self, stored: bytes | None) -> DeltaState | None:
        """The newest state of the table; None where there is no table."""
        versions: dict[int, str] = {}
        checkpoints: dict[int, dict[tuple[int, int], str]] = {}
        for info in self._store.list(f"{self._prefix}{LOG}"):
            parsed = delta_log.log_file(info.name)
            if parsed is not None and parsed.parts:
                parts = checkpoints.setdefault(parsed.version, {})
                parts[parsed.parts, parsed.part] = info.name
            elif parsed is not None:
                versions[parsed.version] = info.name
        if not versions and not checkpoints:
            if stored is None:
                return None
            raise CorruptLogError(
                f"{self._prefix}{LOG} holds no version of the table, though "
                f"{self._prefix}{STATE_FILE} is there.",
                "Restore the table from a backup.",
            )
        state = DeltaState() if 0 in versions else None
        broken: list[CacheFault] = []
        for version in sorted(versions.keys() | checkpoints.keys()):
            if state is not None and version == state.version + 1 and version in versions:
                self._apply(state, version, versions[version])
            elif state is None or version > state.version + 1:
                state = None  # The log before it was cleaned, or has a hole.
            if version in checkpoints:
                state = self._at_checkpoint(state, version, checkpoints[version], broken)
        if state is None or state.version < max(versions, default=0):
            self._faults += [fault.text for fault in broken]
            raise _GoneError(
                f"{self._prefix}{LOG} has a hole below version {max(versions)}, and no "
                "checkpoint above it that can be read.",
                "Restore the table from a backup.",
            )
        self._caches += broken
        return state

    def _apply(self, state: DeltaState, version: int, name: str) -> None:
        data = self._get(name, delta_log.MOST_LOG_BYTES)
        actions = delta_log.actions_of(data, name)
        state.apply(actions, name)
        kinds = {kind for action in actions for kind in action}
        added = [
            delta_log.rows_of(from_value(plain, action["add"], name))
            for action in actions
            if action.get("add") is not None and action["add"].get("dataChange", True)
        ]
        if "remove" not in kinds and None not in added:
            self._counts[version] = sum(rows or 0 for rows in added)

    def _at_checkpoint(
        self,
        state: DeltaState | None,
        version: int,
        parts: dict[tuple[int, int], str],
        broken: list[CacheFault],
    ) -> DeltaState | None:
        """The state with which the log goes on behind a checkpoint."""
        for count in {count for count, _ in parts}:
            files = [parts[key] for key in sorted(parts) if key[0] == count]
            if len(files) < count:
                continue  # Its writer was ended in the middle: no reader takes it.
            try:
                data = [self._get(name, delta_log.MOST_CHECKPOINT_BYTES) for name in files]
                stored = delta_log.read_checkpoint(data, version, files[0])
            except _GoneError:
                raise
            except OffsetLogError as error:
                broken += [CacheFault(name, error.message) for name in files]
                continue
            if state is None or _meaning(stored) == _meaning(state):
                self._whole.add(version)
                state = state or stored
            else:
                text = f"{files[0]} is not what the log says at version {version}"
                broken += [CacheFault(name, text) for name in files]
        return state

    def _check_note(self, name: str, data: bytes | None) -> None:
        if data is None:
            return
        try:
            version = from_json(_VERSION, data, name, MOST_NOTE_BYTES)
        except OffsetLogError as error:
            self._caches.append(CacheFault(name, error.message))
            return
        if version not in self._whole:
            text = f"{name} names the checkpoint of version {version}, which is not there or broken"
            self._caches.append(CacheFault(name, text))

    # --- data files ------------------------------------------------------------------------

    def _facts_of(self, path: str, add: Action) -> Sequence[Fact]:
        name = self._inside(path)
        try:
            data = self._get(name, fact_rows.MOST_FILE_BYTES)
            delta_log.check_file(add, data, name)
            facts = fact_rows.facts_of(fact_rows.open_file(data, name), -1)
            told = delta_log.rows_of(add)
            if told is not None and told != len(facts):
                self._faults.append(f"{name} holds {len(facts)} facts; its version says {told}")
            return facts
        except _GoneError:
            raise
        except OffsetLogError as error:
            self._faults.append(str(error))
        return ()

    def _get(self, name: str, most: int) -> bytes:
        data = self._store.get(name, 0, most + 1)
        if data is None:
            raise _GoneError(f"{name} is missing.", "Restore the table from a backup.")
        if len(data) > most:
            raise CorruptLogError(f"{name} holds more than {most} bytes.")
        self._files += 1
        self._bytes += len(data)
        return data


def _meaning(state: DeltaState) -> tuple[object, ...]:
    adds = {path: add.get("size") for path, add in state.adds.items()}
    return adds, state.protocol, state.metadata.get("id"), state.configuration
