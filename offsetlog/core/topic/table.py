"""A topic as a table: which files it has, and how it gets from one version to the next.

Rules of this module:

1. What a version holds follows from a state of the topic and an offset for each partition, its
   ``end``: the rewritten segments between the log start and that offset, which hold all records
   there are between them. So whoever publishes the same state publishes the same table.
2. A file is the table's as a whole: one that the log start cuts, or of whose records the table
   has only a part in other files, is rewritten first.
3. The table goes to a newer state at the ends that it has, and then its ends grow: what a version
   adds is either records that no version had before, or records that it removes with other files.
4. Only what differs between the stored indexes of two states is looked at, so a step costs what
   changed, at any size of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from offsetlog.core.topic.extents import Extent
from offsetlog.core.topic.index import Leaf, visible
from offsetlog.core.topic.plan import NeedLeaves, extents_of
from offsetlog.core.topic.state import TopicState

_base = attrgetter("base")
Leaves = Mapping[str, Leaf]


class Point(NamedTuple):
    """What a version of a table holds: ``tip`` names the state."""

    tip: int
    ends: tuple[int, ...]
    """For each partition that ever was, up to where the table has everything."""


NOTHING = Point(0, ())


class Removal(NamedTuple):
    extent: Extent
    takes_records: bool
    """False: all of its records are in files that the same version adds."""


class Changes(NamedTuple):
    """How a table gets to a newer state."""

    removed: tuple[Removal, ...]
    added: tuple[Extent, ...]
    """Their records are all in files that are removed."""
    new: tuple[Extent, ...]
    """Their records were never in the table."""
    ends: tuple[int, ...]
    """Before the new ones are added."""
    grown: tuple[int, ...]
    """And afterwards."""

    @property
    def takes_records(self) -> bool:
        return any(removal.takes_records for removal in self.removed)


class Blocked(NamedTuple):
    """The table can't have this state before these were rewritten."""

    extents: tuple[Extent, ...]


def is_ready(extent: Extent) -> bool:
    """Whether a table may name its file: it stores the offsets, as only rewritten ones do."""
    return extent.rewritten


def _is_cut(extent: Extent, start: int, end: int) -> bool:
    """Whether the table can't have an extent as it is. One without records is in no file."""
    outside = extent.base < start or extent.end > end
    return not is_ready(extent) or (outside and is_file(extent))


def is_file(extent: Extent) -> bool:
    """Whether there is a file with records that a table names."""
    return extent.rewritten and extent.segment is not None and extent.records > 0


def changes(
    old: TopicState, old_ends: Sequence[int], new: TopicState, leaves: Leaves
) -> Changes | Blocked | NeedLeaves:
    """From the table of ``old`` at ``old_ends`` to that of ``new``."""
    removed: list[Removal] = []
    added: list[Extent] = []
    fresh: list[Extent] = []
    blocked: list[Extent] = []
    needed: dict[str, None] = {}
    ends, grown = [], []
    for partition, part in enumerate(new.parts):
        had = old_ends[partition] if partition < len(old_ends) else part.start
        end = max(part.start, had)
        ends.append(end)
        step = _step(old, new, partition, end, had, leaves)
        if isinstance(step, NeedLeaves):
            needed |= dict.fromkeys(step.uids)
            grown.append(end)
            continue
        before, after = step
        cut = [e for e in after if _is_cut(e, part.start, end)]
        blocked += cut
        if not cut:
            removed += _removals(before, after)
            added += [e for e in after if is_file(e)]
        following = _following(new, partition, end, leaves)
        if isinstance(following, NeedLeaves):
            needed |= dict.fromkeys(following.uids)
        else:
            fresh += [e for e in following if is_file(e)]
            end = following[-1].end if following else end
        grown.append(end)
    if needed:
        return NeedLeaves(tuple(needed))
    if blocked:
        return Blocked(tuple(blocked))
    return Changes(tuple(removed), tuple(added), tuple(fresh), tuple(ends), tuple(grown))


def _step(
    old: TopicState, new: TopicState, partition: int, end: int, had: int, leaves: Leaves
) -> tuple[list[Extent], list[Extent]] | NeedLeaves:
    """The extents below a table's end that only one of two states has."""
    start = new.start(partition)
    before: list[_Piece] = []
    if partition < len(old.parts):
        before = _pieces(old, partition, old.start(partition), had)
    after = _pieces(new, partition, start, end)
    only_before, only_after = _without(before, after), _without(after, before)
    # The log start may cut a file that is in both.
    at_start = [_piece_at(after, start)] if after and before and start > before[0].base else []
    opened = [_open(pieces, leaves) for pieces in (only_before, only_after, at_start)]
    needed = [uid for need in opened if isinstance(need, NeedLeaves) for uid in need.uids]
    if needed:
        return NeedLeaves(tuple(dict.fromkeys(needed)))
    gone, come, first = (found for found in opened if not isinstance(found, NeedLeaves))
    come |= {key: extent for key, extent in first.items() if extent.base < start}
    stays = {key for key in gone.keys() & come.keys() if come[key].base >= start}
    return (
        [extent for key, extent in gone.items() if key not in stays],
        [extent for key, extent in come.items() if key not in stays],
    )


class _Piece(NamedTuple):
    """Offsets [base, end) of a partition, and where it is said what holds them."""

    base: int
    end: int
    partition: int
    leaf: str
    """The leaf of the index; empty where it is the extent itself."""
    extent: Extent | None = None


def _pieces(state: TopicState, partition: int, start: int, end: int) -> list[_Piece]:
    if start >= end:
        return []
    young = state.parts[partition].tail.overlapping(start, end)
    fences = visible(state.index.fences(partition, start, end), start, young)
    stored = [
        _Piece(f.base, min(f.end, end), partition, state.index.leaves[f.leaf].uid)
        for f in fences
        if f.base < end
    ]
    return sorted(stored + [_Piece(e.base, e.end, partition, "", e) for e in young], key=_base)


def _piece_at(pieces: list[_Piece], offset: int) -> _Piece:
    piece = next(piece for piece in pieces if piece.end > offset)
    return piece._replace(end=offset + 1) if piece.extent is None else piece


def _without(mine: list[_Piece], others: list[_Piece]) -> list[_Piece]:
    """What of some pieces is not the same place in others too."""
    theirs: dict[str, list[_Piece]] = {}
    for piece in others:
        theirs.setdefault(piece.leaf, []).append(piece)
    young = {piece.extent for piece in theirs.get("", ())}
    out: list[_Piece] = []
    for piece in mine:
        if piece.extent is not None:
            out += [piece] if piece.extent not in young else []
            continue
        at = piece.base
        for other in theirs.get(piece.leaf, ()):
            if other.end <= at or other.base >= piece.end:
                continue
            if other.base > at:
                out.append(piece._replace(base=at, end=other.base))
            at = other.end
        if at < piece.end:
            out.append(piece._replace(base=at))
    return out


def _open(pieces: list[_Piece], leaves: Leaves) -> dict[object, Extent] | NeedLeaves:
    """The extents of pieces, each once."""
    missing = dict.fromkeys(p.leaf for p in pieces if p.leaf and p.leaf not in leaves)
    if missing:
        return NeedLeaves(tuple(missing))
    out: dict[object, Extent] = {}
    for piece in pieces:
        if piece.extent is not None:
            out[_identity(piece.extent)] = piece.extent
            continue
        leaf = leaves[piece.leaf]
        for extent in map(leaf.extent, leaf.span(piece.partition, piece.base, piece.end)):
            out[_identity(extent)] = extent
    return out


def _identity(extent: Extent) -> object:
    """The same for one extent in a tail and in a leaf."""
    return extent.base, extent.end, extent.entry, extent.segment


def _removals(before: list[Extent], after: list[Extent]) -> Iterator[Removal]:
    """Files that the table loses. Where as many records come in the same place they are only
    rewritten."""
    groups: list[tuple[int, list[Extent], int]] = []
    """End, files, and how many records are lost."""
    for extent, lost in sorted(
        [(e, e.records) for e in before] + [(e, -e.records) for e in after],
        key=lambda pair: (pair[0].base, pair[0].end),
    ):
        files = [extent] if lost > 0 and is_file(extent) else []
        if groups and extent.base < groups[-1][0]:
            end, together, so_far = groups[-1]
            groups[-1] = (max(end, extent.end), together + files, so_far + lost)
        else:
            groups.append((extent.end, files, lost))
    for _, files, lost in groups:
        yield from (Removal(extent, lost > 0) for extent in files)


def _following(
    state: TopicState, partition: int, start: int, leaves: Leaves
) -> list[Extent] | NeedLeaves:
    """The extents from an offset on that the table may have, up to the first that it may not."""
    out: list[Extent] = []
    part = state.parts[partition]
    if not state.alive or start >= part.end:
        return out
    for extent in extents_of(state, partition, start, part.end, leaves, ahead=8):
        if isinstance(extent, NeedLeaves):
            return extent
        if _is_cut(extent, start, extent.end):
            break
        out.append(extent)
    return out


def files(state: TopicState, ends: Sequence[int], extents: Iterable[Extent]) -> Iterator[Extent]:
    """Of live extents those that the table of a state names."""
    for extent in extents:
        inside = state.start(extent.partition) <= extent.base
        if inside and extent.end <= ends[extent.partition] and is_file(extent):
            yield extent
