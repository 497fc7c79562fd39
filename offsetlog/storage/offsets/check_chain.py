"""``verify`` of the offsets table as a chain of entries: no hole, every entry, every fact."""

from __future__ import annotations

import re
from collections.abc import Callable

from offsetlog.core import strict_json
from offsetlog.core.group.facts import Fact
from offsetlog.errors import CorruptLogError, OffsetLogError
from offsetlog.format import facts_arrow as fact_rows
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

_ENTRY = re.compile(r"([0-9]{20})\.json", re.ASCII)


def check_chain(
    store: Store,
    prefix: str,
    entry_name: Callable[[int], str],
    table_id: Callable[[], str],
    progress: Progress,
) -> TableCheck | None:
    """None where there is no table. ``table_id`` raises for a table that is another log's, and is
    empty where there is none."""
    faults: list[str] = []
    caches: list[CacheFault] = []
    facts: list[Fact] = []
    version = size = files = 0
    state_file = f"{prefix}{STATE_FILE}"
    stored = store.get(state_file, 0, fact_rows.MOST_CHECKPOINT_BYTES + 1)
    last = _last_entry(store, f"{prefix}_log")
    try:
        own_id = table_id()
        if not own_id:
            if last < 0 and stored is None:
                return None
            raise CorruptLogError(f"{entry_name(0)} is missing.", "Restore it from a backup.")
        while True:
            name = entry_name(version + 1)
            data = store.get(name, 0, strict_json.MAX_BYTES + 64)
            if data is None:
                break
            version += 1
            files, size = files + 1, size + len(data)
            facts += _facts_of(data, name, version)
            progress("offsets", version, max(last, version))
        if version < last:
            raise CorruptLogError(
                f"{entry_name(version + 1)} is missing, though entry {last} is there.",
                "Restore it from a backup.",
            )
        faults += missing_facts(facts, {})
        faults += folding_faults(facts, version)
        if not faults:
            reason = state_file_fault(stored, state_file, own_id, facts, version)
            if reason is not None:
                caches.append(CacheFault(state_file, f"{state_file}: {reason}"))
    except OffsetLogError as error:
        faults.append(str(error))
    return TableCheck(version, len(facts), files + 1, size, tuple(faults), tuple(caches))


def _facts_of(data: bytes, name: str, version: int) -> tuple[Fact, ...]:
    facts = fact_rows.decode_facts(data, name)
    if any(fact.version != version for fact in facts):
        raise CorruptLogError(f"{name} holds facts of another version.")
    return facts


def _last_entry(store: Store, folder: str) -> int:
    numbers = (
        int(found[1])
        for bucket in store.folders(folder)
        for info in store.list(f"{folder}/{bucket}")
        if (found := _ENTRY.fullmatch(info.name.rpartition("/")[2]))
    )
    return max(numbers, default=-1)
