"""``verify`` of the offsets table as a Delta table: its log, its files, its facts.

Invariants:

1. The log is looked at as a whole (``check_log``), and of its files those of the newest version.
2. A table in use gives no false alarm: what is gone is looked for again in a newer version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from offsetlog.core.decode import from_value, plain
from offsetlog.core.group.facts import Fact
from offsetlog.errors import CorruptLogError, OffsetLogError
from offsetlog.format import delta_log, notes
from offsetlog.format import facts_arrow as fact_rows
from offsetlog.format.delta_log import LOG, Action, DeltaState
from offsetlog.storage.delta.check_log import TRIES, GoneError, LogCheck
from offsetlog.storage.offsets.check import (
    CacheFault,
    Progress,
    TableCheck,
    folding_faults,
    missing_facts,
    state_file_fault,
)
from offsetlog.storage.offsets.port import STATE_FILE, UNNAMED
from offsetlog.storage.store import Store


class DeltaCheck:
    """One look at one table, of which nothing but its place is known."""

    def __init__(
        self,
        store: Store,
        prefix: str,
        inside: Callable[[str], str],
        check_ours: Callable[[DeltaState], None],
        settings: Mapping[str, str],
        progress: Progress,
    ) -> None:
        """``prefix`` is the table's folder, ``inside`` gives the name of a path in its log, and
        ``check_ours`` raises for a table that is another's or of another shape; ``settings`` are
        those that a table is made with."""
        self._store = store
        self._prefix = prefix
        self._inside = inside
        self._check_ours = check_ours
        self._progress = progress
        self._settings = settings
        self._reset()

    def _reset(self) -> None:
        self._faults: list[str] = []
        self._caches: list[CacheFault] = []
        self._counts: dict[int, int] = {}
        self._log = LogCheck(
            self._store, self._prefix, lambda state, data, name: None, self._applied
        )

    def run(self) -> TableCheck | None:
        """None where there is no table."""
        for again in range(TRIES):
            self._reset()
            try:
                return self._run()
            except GoneError as error:
                if again == TRIES - 1:
                    self._faults.append(str(error))
            except OffsetLogError as error:
                self._faults.append(str(error))
                break
        return self._check(-1, 0)

    def _check(self, version: int, facts: int) -> TableCheck:
        faults = (*self._log.faults, *self._faults)
        caches = (*self._log.caches, *self._caches)
        return TableCheck(version, facts, self._log.files, self._log.bytes, faults, caches)

    def _run(self) -> TableCheck | None:
        name = f"{self._prefix}{STATE_FILE}"
        stored = self._store.get(name, 0, fact_rows.MOST_CHECKPOINT_BYTES + 1)
        state = self._log.run()
        if state is None:
            if stored is None:
                return None
            raise CorruptLogError(
                f"{self._prefix}{LOG} holds no version of the table, though "
                f"{self._prefix}{STATE_FILE} is there.",
                "Restore the table from a backup.",
            )
        self._check_ours(state)
        self._check_unnamed()
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

    def _applied(
        self, state: DeltaState, data: bytes, actions: Sequence[Action], name: str
    ) -> None:
        """Note how many facts a version has, and whether readers of Delta understand it."""
        if not delta_log.is_understood(actions) or not delta_log.is_first(actions, self._settings):
            # What the facts add up to is looked at all the same.
            self._log.faults.append(f"{name} was changed: it is not what its author wrote")
        kinds = {kind for action in actions for kind in action}
        added = [
            delta_log.rows_of(from_value(plain, action["add"], name))
            for action in actions
            if action.get("add") is not None and action["add"].get("dataChange", True)
        ]
        if "remove" not in kinds and None not in added:
            self._counts[state.version] = sum(rows or 0 for rows in added)

    def _check_unnamed(self) -> None:
        name = f"{self._prefix}{UNNAMED}"
        data = self._store.get(name, 0, delta_log.MOST_LOG_BYTES + 1)
        try:
            if data is not None:
                notes.decode(plain, data, name, delta_log.MOST_LOG_BYTES)
        except OffsetLogError as error:
            self._caches.append(CacheFault(name, error.message))

    # --- data files ------------------------------------------------------------------------

    def _facts_of(self, path: str, add: Action) -> Sequence[Fact]:
        name = self._inside(path)
        try:
            data = self._log.get(name, fact_rows.MOST_FILE_BYTES)
            delta_log.check_file(add, data, name)
            facts = fact_rows.facts_of(fact_rows.open_file(data, name), -1)
            told = delta_log.rows_of(add)
            if told is not None and told != len(facts):
                self._faults.append(f"{name} holds {len(facts)} facts; its version says {told}")
            return facts
        except GoneError:
            raise
        except OffsetLogError as error:
            self._faults.append(str(error))
        return ()
