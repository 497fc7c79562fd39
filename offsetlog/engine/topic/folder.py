"""What of a folder is a topic's, and the removal of its files.

Invariants:

1. A file is the topic's when its name parses as one of a topic's, at its place. Nothing else is
   deleted, and no folder that holds anything else.
2. The chain goes last, and its beginning first: what a purge that was ended in the middle leaves
   is the deleted topic, or a folder that is none and that the next purge removes.
3. Memory is bounded, however much there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from offsetlog.errors import InvalidRequestError
from offsetlog.format import names
from offsetlog.storage.store import FileInfo, Store

OTHERS_NAMED = 20
AT_ONCE = 1000
ROUNDS = 3
"""A writer that does not know yet may add a file while its folder is removed."""
ALL_OF_TIME = 2**62


class FolderContents(NamedTuple):
    """Of a topic's folder: the files that are the topic's, and what is not."""

    files: int = 0
    bytes: int = 0
    others: tuple[str, ...] = ()
    """Names below the root of what is not the topic's; those of folders end with a slash."""
    more: int = 0
    """How many more of them there are, which are not named."""

    def others_in_words(self) -> str:
        """What is not the topic's, in words."""
        text = ", ".join(repr(name) for name in self.others)
        return f"{text} and {self.more} more" if self.more else text


class _Others:
    def __init__(self) -> None:
        self.names: list[str] = []
        self.more = 0

    def add(self, name: str) -> None:
        if len(self.names) < OTHERS_NAMED:
            self.names.append(name)
        else:
            self.more += 1


def read_contents(store: Store, folder: str) -> FolderContents:
    """What is there; nothing is changed."""
    others, files, size = _Others(), 0, 0
    for place in _places(store, folder, others):
        for info in _files(store, place, others):
            files, size = files + 1, size + info.size
    return FolderContents(files, size, tuple(sorted(others.names)), others.more)


def remove_files(store: Store, folder: str) -> FolderContents:
    """Delete what is the topic's, and the folders that are empty then; what was deleted, and
    what was left."""
    files = size = 0
    others = _Others()
    for _ in range(ROUNDS):
        others = _Others()
        places = list(_places(store, folder, others))
        for place in places:
            listed = _files(store, place, others)
            while chunk := [info for _, info in zip(range(AT_ONCE), listed, strict=False)]:
                store.delete([info.name for info in chunk])
                files, size = files + len(chunk), size + sum(info.size for info in chunk)
            _sweep(store, place)
        _sweep(store, folder)
        remains = _remove_folders(store, folder, places)
        if not remains or others.names:
            break
    else:
        others.add(f"{folder}/")  # Something that is neither a file nor a folder, or new files.
    return FolderContents(files, size, tuple(sorted(others.names)), others.more)


def _places(store: Store, folder: str, others: _Others) -> Iterator[str]:
    """The folders that hold a topic's files, in the order in which they may go."""
    for info in store.list(folder):
        others.add(info.name)
    parts = sorted(store.folders(folder))
    for name in parts:
        if not names.is_topics_part(name):
            others.add(f"{folder}/{name}/")
    for name in sorted(filter(names.is_topics_part, parts), key=_removal_order):
        place = f"{folder}/{name}"
        for inner in sorted(store.folders(place)):
            if names.is_topics_part(f"{name}/{inner}"):
                yield f"{place}/{inner}"
            else:
                others.add(f"{place}/{inner}/")
        yield place


def _removal_order(part: str) -> tuple[int, str]:
    return {"_snapshot": 0, "_index": 1, "_delta_log": 2, "_log": 4}.get(part, 3), part


def _files(store: Store, place: str, others: _Others) -> Iterator[FileInfo]:
    """The topic's files of a folder, those with the least names first where they are a chain's."""
    listed = store.list(place)
    if "/_log" in place:
        listed = iter(sorted(listed))  # A bucket has a bounded number of them.
    for info in listed:
        if names.is_topics_file(info.name):
            yield info
        else:
            others.add(info.name)


def _sweep(store: Store, place: str) -> None:
    """Temporaries of writers that were killed: they are not listed."""
    store.sweep(place, ALL_OF_TIME)


def _remove_folders(store: Store, folder: str, places: list[str]) -> bool:
    """Remove the empty ones; whether the topic's own folder is still there."""
    existing: dict[str, set[str]] = {}
    for place in places:
        parent, _, last = place.rpartition("/")
        if parent not in existing:
            existing[parent] = set(store.folders(parent))
        if last in existing[parent]:
            store.remove_folder(place)
    return not store.remove_folder(folder)


def check_free(store: Store, folder: str) -> None:
    """Refuse to make a topic of a folder that holds anything but a topic's parts, or the rest of
    a chain whose beginning is gone. Only the folder itself is looked at, not what is below."""
    where = f"{store.url}/{folder}"
    others = _Others()
    for info in store.list(folder):
        if info.name == f"{folder}/{names.ROOT_FILE}":
            raise InvalidRequestError(
                f"{where} is the root of another log, so it can't become a topic of {store.url}.",
                "Choose another name for the topic, or another root.",
            )
        others.add(info.name)
    for name in store.folders(folder):
        if not names.is_topics_part(name):
            others.add(f"{folder}/{name}/")
    if others.names:
        text = FolderContents(others=tuple(others.names), more=others.more).others_in_words()
        raise InvalidRequestError(
            f"{where} holds what is no part of a topic: {text}.",
            "A topic has its folder for itself: choose another name, or move that away.",
        )
    check_no_rest(store, folder)


def check_no_rest(store: Store, folder: str) -> None:
    """Raise if a folder holds later entries of a chain whose first one is gone."""
    where = f"{store.url}/{folder}"
    first = names.EntryName(folder, 0)
    later = ""
    for bucket in store.folders(names.log_folder(folder)):
        for info in store.list(f"{names.log_folder(folder)}/{bucket}"):
            if info.name == str(first):
                return  # Somebody made the topic just now.
            if names.parse_entry(info.name) is not None:
                later = info.name
    if later:
        raise InvalidRequestError(
            f"{where} holds the rest of a topic that was removed while somebody wrote to it: "
            f"{later!r} is there, and no entry 0.",
            f"Remove it: offsetlog topics delete {folder} --purge",
        )
