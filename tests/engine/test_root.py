"""Which root is at an address: looked at each time, and read only where its file was replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from offsetlog.client.log import Log
from offsetlog.errors import StorageError
from offsetlog.format import root_file
from offsetlog.format.names import ROOT_FILE


@pytest.fixture(autouse=True)
def orders(log: Log) -> None:
    log.create_topic("orders")


@pytest.fixture
def reads(log: Log, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    true = log.store.get

    def get(name: str, *given: int) -> bytes | None:
        names.append(name)
        return true(name, *given)

    log.root.require()
    log.root.check()
    monkeypatch.setattr(log.store, "get", get)
    return names


def test_a_root_whose_file_is_the_same_is_not_read_again(log: Log, reads: list[str]) -> None:
    log.root.check()
    assert reads == []


def test_a_copy_of_its_file_is_read_once(log: Log, reads: list[str], tmp_path: Path) -> None:
    file = tmp_path / "log" / ROOT_FILE
    data = file.read_bytes()
    file.unlink()
    file.write_bytes(data)
    log.root.check()
    log.root.check()
    assert reads == [ROOT_FILE]


@pytest.mark.parametrize("in_place", [True, False])
def test_another_root_in_its_place_is_refused_each_time(
    log: Log, reads: list[str], tmp_path: Path, in_place: bool
) -> None:
    file = tmp_path / "log" / ROOT_FILE
    own, other = file.read_bytes(), root_file.encode("0" * 32)
    assert len(other) == len(own)
    if not in_place:
        file.unlink()
    file.write_bytes(other)
    for _ in range(2):
        with pytest.raises(StorageError, match="Another log than"):
            log.root.check()
    file.write_bytes(own)
    log.root.check()


def test_a_root_that_is_not_there_is_refused_each_time(
    log: Log, reads: list[str], tmp_path: Path
) -> None:
    root, away = tmp_path / "log", tmp_path / "away"
    root.rename(away)
    for _ in range(2):
        with pytest.raises(StorageError, match="is not at"):
            log.root.check()
    away.rename(root)
    log.root.check()
