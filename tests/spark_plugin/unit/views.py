"""Machines that see a root differently: another folder lies at its path for a while."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import offsetlog
from pyspark_offsetlog.runtime import open_logs as logs


def another_process() -> None:
    """What comes now remembers nothing, as a new worker or a driver that was started again."""
    logs._open.clear()
    logs._root_ids.clear()


def tree(folder: Path) -> set[str]:
    """All that is in a folder, and the folder itself."""
    found = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    return found | {"."} if folder.exists() else found


def _nothing(root: Path, older: Path) -> None:
    """The mount point's folder itself is not there."""


def _empty(root: Path, older: Path) -> None:
    root.mkdir()


def _another(root: Path, older: Path) -> None:
    """With the same topic and more in it, so that every offset is there."""
    with offsetlog.open(str(root)) as log:
        log.create_topic("t", partitions=4)
        with log.producer() as producer:
            for _ in range(6):
                producer.send("t", bytes(300_000), partition=0).result()


def _older(root: Path, older: Path) -> None:
    shutil.copytree(older, root)


VIEWS: dict[str, Callable[[Path, Path], None]] = {
    "nothing": _nothing,
    "empty": _empty,
    "another": _another,
    "older": _older,
}


@contextmanager
def seen_as(view: str, root: Path) -> Iterator[None]:
    """Who looks at ``root`` in this block sees something else, and makes nothing there. The older
    copy is the one that ``keep_copy`` made."""
    away = root.with_name("away")
    root.rename(away)
    try:
        VIEWS[view](root, root.with_name("older"))
        before = tree(root)
        yield
        made = tree(root) - before
        if view == "older":  # It has the root's id, so nobody can tell it from the root.
            made = {path for path in made if "partition=" not in path}
        assert not made, f"made where the log is not: {sorted(made)}"
    finally:
        shutil.rmtree(root, ignore_errors=True)
        away.rename(root)


def keep_copy(root: Path) -> None:
    # Others write meanwhile: what has no name yet comes and goes.
    unnamed = shutil.ignore_patterns(".tmp-*")
    shutil.copytree(root, root.with_name("older"), ignore=unnamed)
