"""What a copy says of itself: the note beside its root's file, and that file while it is made.

Invariants:

1. Until a copy is complete its root's file is of a format that every library refuses by name.
2. The note names the log that was copied, and what of it. It is written before anything else, and
   stays: by it the copy is brought up to date later. One without a sum is of an earlier library.
"""

from __future__ import annotations

from typing import NamedTuple

from offsetlog.core.decode import (
    Decoder,
    hexadecimal,
    integer,
    list_of,
    nullable,
    record,
    string,
)
from offsetlog.format import notes
from offsetlog.storage.store import Store

COPY_NOTE = "_copy.json"
MAX_BYTES = 16 * 1024 * 1024


class CopyNote(NamedTuple):
    copy_of: str
    """Id of the log that is copied."""
    id: str
    """Id of the copy."""
    topics: tuple[str, ...] | None
    """None: all of them, also those that are created later."""
    groups: tuple[str, ...] | None
    offsets: int
    """The version of the offsets table up to which this is its source's; -1: none was copied."""


_NOTE: Decoder[CopyNote] = record(
    CopyNote,
    copy_of=hexadecimal(32),
    id=hexadecimal(32),
    topics=nullable(list_of(string())),
    groups=nullable(list_of(string())),
    offsets=integer(-1),
)


def read_note(store: Store) -> CopyNote | None:
    data = store.get(COPY_NOTE, 0, MAX_BYTES + 1)
    return None if data is None else notes.decode(_NOTE, data, COPY_NOTE, MAX_BYTES)


def write_note(store: Store, note: CopyNote) -> None:
    store.put(COPY_NOTE, notes.encode(note._asdict()))
