"""What ``verify`` finds in an offsets table, and what it asks of both kinds of them.

Invariants:

1. All facts are folded from the first; no stored state is believed, it is compared.
2. A fault breaks a promise. A fault of a cache costs time only, and names the one file that may
   be deleted for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from offsetlog.core.group.facts import Fact
from offsetlog.core.group.fold import fold
from offsetlog.core.group.state import EMPTY, by_rules
from offsetlog.errors import OffsetLogError
from offsetlog.format import facts_arrow as fact_rows

Progress = Callable[[str, int, int], None]


class CacheFault(NamedTuple):
    """What is wrong with a cache, and the file that may be deleted for it."""

    file: str
    text: str


class TableCheck(NamedTuple):
    """What was found in an offsets table."""

    version: int
    facts: int
    files: int
    bytes: int
    faults: tuple[str, ...]
    caches: tuple[CacheFault, ...]


def missing_facts(facts: Iterable[Fact], counts: Mapping[int, int]) -> Iterator[str]:
    """The versions of which facts are missing. ``counts`` says how many a version had, of those
    for which that is known; the facts of one are numbered from 0."""
    places: defaultdict[int, set[int]] = defaultdict(set)
    for fact in facts:
        places[fact.version].add(fact.place)
    for version in sorted(places.keys() | counts.keys()):
        held = places.get(version, set())
        needed = max(counts.get(version, 0), max(held, default=-1) + 1)
        if len(held) < needed:
            yield f"{needed - len(held)} of the {needed} facts of version {version} are missing"


def folding_faults(facts: Sequence[Fact], version: int) -> Iterator[str]:
    try:
        fold(EMPTY, facts, version)
    except OffsetLogError as error:
        yield error.message


def state_file_fault(
    data: bytes | None, name: str, table_id: str, facts: Sequence[Fact], version: int
) -> str | None:
    """What is wrong with the stored state of a table with these facts, which are sound. It is
    read before they are, so that it is not only newer."""
    if data is None:
        return None
    if not fact_rows.is_whole(data):
        return "its checksum differs"
    stored = fact_rows.decode_checkpoint(data, name)
    if stored is None:
        return None  # Of an earlier version of the library: passed over.
    table, state = stored
    if table != table_id:
        return f"it is the state of another table, {table[:64]!r}"
    if state.version > version:
        return f"it is the state at version {state.version}, and the table is at {version}"
    earlier = [fact for fact in facts if fact.version <= state.version]
    if by_rules(fold(EMPTY, earlier, state.version)) != by_rules(state):
        return f"it is not what the facts up to version {state.version} add up to"
    return None
