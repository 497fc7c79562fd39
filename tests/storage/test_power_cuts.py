"""What a power cut leaves of a group's commits on a local disk, at any moment of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

import offsetlog
from offsetlog.storage import open_store
from offsetlog.storage.delta import table as delta_offsets
from offsetlog.storage.offsets.open import open_offsets
from tests.storage.power_cut import Disk, Image

TP = ("orders", 0)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(tmp_path / "disk", monkeypatch)
    yield disk
    disk.close()


def made(place: Path) -> offsetlog.Log:
    log = offsetlog.open(str(place / "log"))
    log.create_topic("orders", partitions=1)
    with log.producer() as producer:
        for number in range(100):
            producer.send("orders", b"%d" % number)
    return log


def commit(log: offsetlog.Log, *numbers: int) -> None:
    with log.consumer("billing", enable_auto_commit=False) as consumer:
        consumer.assign([TP])
        for number in numbers:
            consumer.commit({TP: number})


def goes_on(image: Image, place: Path) -> int:
    """What the group has committed; afterwards it commits, and others read what it did."""
    with offsetlog.open(str(image.write_to(place) / "log")) as log:
        with log.consumer("billing", enable_auto_commit=False) as consumer:
            consumer.assign([TP])
            found = consumer.committed(TP).get(TP)
        commit(log, 99)
        log.maintain()
        rows = QueryBuilder().register(
            "facts", DeltaTable(str(place / "log" / "__consumer_offsets"))
        )
        newest = rows.execute('SELECT max("offset") AS newest FROM facts').read_all()
        assert pa.table(newest).to_pylist() == [{"newest": 99}]
        return -1 if found is None else found


@pytest.mark.parametrize("there", [False, True])
def test_the_first_commit_survives_a_power_cut(disk, tmp_path, there):
    with made(disk.place) as log:
        commit(log, 7)
        image = disk.image(there)
    assert goes_on(image, tmp_path / "after") == 7


@pytest.mark.parametrize("there", [False, True])
def test_who_finds_a_table_that_nobody_synced_syncs_it(disk, tmp_path, there, monkeypatch):
    """As a library makes it, or a program that was killed before it could."""
    with made(disk.place) as log:
        with monkeypatch.context() as unsynced:
            unsynced.setattr(disk, "_note", lambda fd: None)
            open_offsets(open_store(log.url)).create()
        commit(log, 7)
        image = disk.image(there)
    assert goes_on(image, tmp_path / "after") == 7


@pytest.mark.parametrize("there", [False, True])
def test_after_upkeep_groups_go_on_behind_a_power_cut(disk, tmp_path, there, monkeypatch):
    monkeypatch.setattr(delta_offsets, "LOGS_KEPT", 3)
    with made(disk.place) as log:
        commit(log, 0)
        disk.settle()
        commit(log, *range(1, 12))
        log.maintain(grace_ms=0)
        commit(log, 12)
        image = disk.image(there)
    assert goes_on(image, tmp_path / "after") == 12


def test_a_power_cut_at_any_moment_takes_nothing_that_was_acknowledged(disk, tmp_path, monkeypatch):
    monkeypatch.setattr(delta_offsets, "LOGS_KEPT", 3)
    acknowledged, images = [-1], []

    def keep() -> None:
        images.append((acknowledged[0], disk.image(len(images) % 2 == 1)))

    with made(disk.place) as log:
        disk.at_each_sync = keep
        for number in range(9):
            commit(log, number)
            acknowledged[0] = number
            if number % 4 == 3:
                log.maintain(grace_ms=0)
        disk.at_each_sync = lambda: None
    assert len(images) > 50
    for at, (told, image) in enumerate(images):
        found = goes_on(image, tmp_path / f"after{at}")
        assert told <= found <= told + 1, at


def test_a_note_of_a_checkpoint_that_is_not_there_stops_nobody(tmp_path):
    """As older versions left it behind a power cut; upkeep writes a sound one."""
    with made(tmp_path) as log:
        commit(log, *range(5))
        log.maintain()
        commit(log, 5)
    table = tmp_path / "log" / "__consumer_offsets"
    [checkpoint] = (table / "_delta_log").glob("*.checkpoint.parquet")
    note = table / "_delta_log" / "_last_checkpoint"
    for damage in (
        lambda: checkpoint.write_bytes(b""),
        lambda: note.write_bytes(b""),
        lambda: note.write_bytes(b'{"version":77,"size":4}'),
        lambda: note.unlink(),
    ):
        damage()
        with offsetlog.open(str(tmp_path / "log")) as log:
            commit(log, 6)
        with offsetlog.open(str(tmp_path / "log")) as log:
            log.maintain()
            commit(log, 7)
        assert DeltaTable(str(table)).version() > 7
