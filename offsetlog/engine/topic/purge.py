"""What of a folder is a topic's, and the removal of that.

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


class Contents(NamedTuple):
    """Of a topic's folder: the files that are the topic's, and what is not."""

    files: int = 0
    bytes: int = 0
    others: tuple[str, ...] = ()
    """Names below the root of what is not the topic's; those of folders end with a slash."""
    more: int = 0
    """How many more of them there are, which are not named."""

    def others_told(self) -> str:
        """What is not the topic's, in words."""
        told = ", ".join(repr(name) for name in self.others)
        return f"{told} and {self.more} more" if self.more else told


class PurgePlan(NamedTuple):
    """What a purge of a topic would remove."""

    topic: str
    address: str
    records: int | None
    """None: the topic can't be read."""
    contents: Contents


class _Others:
    def __init__(self) -> None:
        self.names: list[str] = []
        self.more = 0

    def add(self, name: str) -> None:
        if len(self.names) < OTHERS_NAMED:
            self.names.append(name)
        else:
            self.more += 1


def contents(store: Store, folder: str) -> Contents:
    """What is there; nothing is changed."""
    others, files, size = _Others(), 0, 0
    for place in _places(store, folder, others):
        for info in _files(store, place, others):
            files, size = files + 1, size + info.size
    return Contents(files, size, tuple(sorted(others.names)), others.more)


def remove(store: Store, folder: str) -> Contents:
    """Delete what is the topic's, and the folders that are empty then; what was deleted, and
    what was left."""
    files = size = 0
    others = _Others()
    for _ in range(ROUNDS):
        others = _Others()
        places = list(_places(store, folder, others))
        for place in places:
            found = _files(store, place, others)
            while chunk := [info for _, info in zip(range(AT_ONCE), found, strict=False)]:
                store.delete([info.name for info in chunk])
                files, size = files + len(chunk), size + sum(info.size for info in chunk)
            _sweep(store, place)
        _sweep(store, folder)
        left = _remove_folders(store, folder, places)
        if not left or others.names:
            break
    else:
        others.add(f"{folder}/")  # Something that is neither a file nor a folder, or new files.
    return Contents(files, size, tuple(sorted(others.names)), others.more)


def _places(store: Store, folder: str, others: _Others) -> Iterator[str]:
    """The folders that hold a topic's files, in the order in which they may go."""
    for info in store.list(folder):
        others.add(info.name)
    found = sorted(store.folders(folder))
    for name in found:
        if not names.is_topics_part(name):
            others.add(f"{folder}/{name}/")
    for name in sorted(filter(names.is_topics_part, found), key=_turn):
        place = f"{folder}/{name}"
        below = sorted(store.folders(place))
        for inner in below:
            if names.is_topics_part(f"{name}/{inner}"):
                yield f"{place}/{inner}"
            else:
                others.add(f"{place}/{inner}/")
        yield place


def _turn(part: str) -> tuple[int, str]:
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
    sweep = getattr(store, "sweep", None)
    if sweep is not None:
        sweep(place, ALL_OF_TIME)


def _remove_folders(store: Store, folder: str, places: list[str]) -> bool:
    """Remove the empty ones; whether the topic's own folder is still there."""
    remove_folder = getattr(store, "remove_folder", None)
    if remove_folder is None:
        return False  # Folders are only a part of the names of files there.
    there: dict[str, set[str]] = {}
    for place in places:
        above, _, last = place.rpartition("/")
        if above not in there:
            there[above] = set(store.folders(above))
        if last in there[above]:
            remove_folder(place)
    return not remove_folder(folder)


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
        told = Contents(others=tuple(others.names), more=others.more).others_told()
        raise InvalidRequestError(
            f"{where} holds what is no part of a topic: {told}.",
            "A topic has its folder for itself: choose another name, or move that away.",
        )
    first = names.EntryName(folder, 0)
    later = ""
    for bucket in store.folders(names.log_folder(folder)):
        for info in store.list(f"{names.log_folder(folder)}/{bucket}"):
            if info.name == str(first):
                return  # Somebody made the topic just now.
            if names.parse_entry(info.name) is not None:
                later = info.name
    if later:
        topic = folder
        raise InvalidRequestError(
            f"{where} holds the rest of a topic that was removed while somebody wrote to it: "
            f"{later!r} is there, and no entry 0.",
            f"Remove it: offsetlog topics delete {topic} --purge",
        )


def check_surroundings(store: Store, offsets_folder: str) -> None:
    """Refuse to make a root inside another root's topic. Only the folders above are looked at."""
    above = getattr(store, "above", None)
    if above is None:
        return
    for higher, part in above():
        try:
            if higher.get(names.ROOT_FILE, 0, 1) is None:
                continue
            taken = part == offsets_folder or (
                names.is_topic_folder(part) and any(higher.folders(names.log_folder(part)))
            )
        except Exception:  # noqa: BLE001, S112 - who may not look there can't have a log there
            continue
        if taken:
            raise InvalidRequestError(
                f"{store.url} lies in {part!r} of the log at {higher.url}, so it can't be the "
                "root of a log of its own.",
                "Choose a root outside of other logs.",
            )
