"""Planted bugs of the offsets table as a Delta table: histories upon a chain can't meet them.

They are switched on in tests only, one at a time, by replacing a function."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from offsetlog.storage.delta.compact import Compaction
from offsetlog.storage.delta.table import DeltaOffsets
from offsetlog.storage.store import Conflict
from tests.simulation.planting import Patch, patched


def planted(name: str) -> AbstractContextManager[None]:
    return patched(MUTATIONS[name]())


def _rebased_appends() -> list[Patch]:
    """An append that meets another is tried at the next version, as Delta's libraries do."""
    true = DeltaOffsets.append

    def append(self: Any, facts: Any, version: int) -> Any:
        result = true(self, facts, version)
        return true(self, facts, version + 1) if isinstance(result, Conflict) else result

    return [(DeltaOffsets, "append", append)]


def _a_compaction_beside_another() -> list[Patch]:
    """A compaction lands whatever became of the files that it replaces."""
    return [(Compaction, "fits", lambda self, live: True)]


MUTATIONS: dict[str, Callable[[], list[Patch]]] = {
    "an append of facts is rebased": _rebased_appends,
    "a compaction lands beside another": _a_compaction_beside_another,
}
