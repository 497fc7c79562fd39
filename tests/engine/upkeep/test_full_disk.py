"""A disk that is full: what the chain let go already is deleted before anything is written."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import offsetlog
from offsetlog.engine.upkeep.maintenance import Maintenance
from offsetlog.errors import StorageError
from tests.engine.upkeep.test_compaction import read, sound

DISK = 2 << 20
KEEP = {"retention.ms": "-1", "compression.type": "none"}


def used(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A real disk of 2 MiB where we may mount one, else one whose ``write`` says it is full."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    if not os.geteuid() and not subprocess.run(mount, capture_output=True, check=False).returncode:
        yield folder
        subprocess.run(["umount", "-l", str(folder)], check=True)
        return
    plain = os.write

    def write(fd: int, data: Any) -> int:
        if used(folder) + len(data) > DISK:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return plain(fd, data)

    monkeypatch.setattr(os, "write", write)
    yield folder


def fill(disk: Path, leave: int = 0) -> None:
    """Leave so many bytes of room."""
    with (disk / "filler").open("wb", buffering=0) as file:
        try:
            while os.write(file.fileno(), b"x" * 4096):
                pass
        except OSError as error:
            assert error.errno == errno.ENOSPC
        file.truncate(max(0, file.tell() - leave))


def send(log: Any, topic: str, size: int, count: int = 1) -> None:
    with log.producer(linger_ms=0) as producer:
        for _ in range(count):
            table = pa.table({"value": pa.array([os.urandom(1024)] * (size // 1024), pa.binary())})
            producer.send_arrow(topic, table).result()


def let_go(log: Any, topic: str) -> None:
    """All records, in a round that is killed before it deletes their segments."""
    log.topic(topic).delete_records({0: -1})
    killed = Maintenance(log.open_topic(topic), grace_ms=0)
    killed._collect(killed._storage_now(), killed._note(), waits=True)


CALLS: dict[str, Callable[[Any], object]] = {
    "maintain": lambda log: log.maintain(grace_ms=0),
    "delete_records": lambda log: log.topic("t").delete_records({0: -1}),
    "delete_topic": lambda log: log.delete_topic("t"),
    "erase": lambda log: log.topic("t").erase([b"nobody's"]),
}


@pytest.mark.parametrize("call", CALLS)
def test_what_may_go_goes_first(disk: Path, call: str) -> None:
    with offsetlog.open(str(disk / "log")) as log:
        log.create_topic("t", config=KEEP)
        send(log, "t", 1 << 20)
        let_go(log, "t")
        fill(disk)
        before = used(disk / "log")
        with pytest.raises(StorageError, match="the disk is full"):
            log.create_topic("other")
        CALLS[call](log)
        assert used(disk / "log") < before - 900_000
        sound(log)


def test_one_topic_makes_room_for_another(disk: Path) -> None:
    with offsetlog.open(str(disk / "log")) as log:
        for topic in ("a", "b"):
            log.create_topic(topic, config=KEEP)
        send(log, "b", 1 << 20)
        send(log, "a", 10_240, count=8)
        let_go(log, "b")
        fill(disk)
        reports = {report.topic: report for report in log.maintain(grace_ms=0)}
        assert reports["a"].rewritten_files == 8
        assert reports["b"].deleted_bytes > 1 << 20
        sound(log)


def test_what_needs_much_room_does_not_keep_what_needs_little(disk: Path) -> None:
    """The files that wait to be merged need more room than there is, until expired ones go."""
    with offsetlog.open(str(disk / "log")) as log:
        log.create_topic("t", config=KEEP)
        send(log, "t", 600 << 10)
        send(log, "t", 50 << 10, count=8)
        log.topic("t").delete_records({0: 600})
        fill(disk, leave=64 << 10)
        [report] = log.maintain("t", grace_ms=0)
        assert report.rewritten_files == 8 and report.deleted_bytes > 600 << 10
        assert len(read(log)[0]) == 400
        sound(log)


def test_nothing_that_may_go_is_the_error(disk: Path) -> None:
    with offsetlog.open(str(disk / "log")) as log:
        log.create_topic("t", config=KEEP)
        send(log, "t", 1 << 20)
        fill(disk)
        for call in CALLS.values():
            with pytest.raises(StorageError, match="the disk is full"):
                call(log)
        assert len(read(log)[0]) == 1024
        (disk / "filler").unlink()
        sound(log)
