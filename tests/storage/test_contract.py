"""Every store passes the public suite; what can't decide a race is refused by it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from offsetlog.storage import Committed, Conflict, Store, open_store
from offsetlog.storage.fsspec import LookThenWriteStore
from offsetlog.storage.local.disk import LocalStore
from offsetlog.testing import Report, assert_store, check_store
from offsetlog.testing.conformance import OPENER

HERE = "tests.storage.test_contract"


# -- what passes


@pytest.mark.parametrize("named", [False, True], ids=["unnamed-temporaries", "named-temporaries"])
@pytest.mark.parametrize("disk", ["/tmp", "/dev/shm"])
def test_local(disk: str, named: bool) -> None:
    with tempfile.TemporaryDirectory(dir=disk) as folder:
        opener = f"{HERE}:open_with_named_temporaries" if named else OPENER
        report = assert_store(folder, processes=8, rounds=60, opener=opener)
        assert report.rounds == report.rounds_with_one_winner == 60
        assert list(Path(folder).iterdir()) == []


def open_with_named_temporaries(url: str) -> Store:
    return LocalStore(url, unnamed_temporaries=False)


def test_memory() -> None:
    report = assert_store("memory://contract", processes=8, rounds=200)
    assert report.rounds == report.rounds_with_one_winner == 200


@pytest.mark.parametrize(
    "server", ["seaweedfs", "moto", "azurite", "fake_gcs", "sftp", "smb", "samba"]
)
def test_server(server: str, request: pytest.FixtureRequest) -> None:
    url, options = request.getfixturevalue(server)
    rounds = 10 if server == "samba" else 40  # A process of Samba's for each connection.
    report = assert_store(f"{url}/contract", options, processes=5, rounds=rounds)
    print(report)
    assert report.rounds == report.rounds_with_one_winner == rounds


# -- what is refused


def test_a_server_that_lets_every_racer_win_is_refused(
    rclone: Any,
) -> None:
    report = check_store(f"{rclone.url}/contract", rclone.options, processes=4, rounds=20)
    assert not report.passed
    assert "a second create" in report.faults[0]


def open_that_looks_first(url: str) -> Store:
    """What fsspec does by itself, on a disk: it looks, and then it writes."""
    return LookThenWriteStore("file", url, f"file://{url}", {"auto_mkdir": True}, "a test")


def test_looking_before_writing_is_caught_by_its_races(tmp_path: Path) -> None:
    for attempt in range(3):
        url = str(tmp_path / str(attempt))
        report = check_store(url, processes=8, rounds=80, opener=f"{HERE}:open_that_looks_first")
        if report.rounds:
            break  # Else a racer failed outright, which such a store can make of a lost race.
    race = next(check for check in report.checks if check.name == "race")
    # One process alone sees nothing wrong with it.
    assert next(c for c in report.checks if c.name == "creates once").passed
    assert not race.passed
    assert report.rounds_with_one_winner < report.rounds


class _Broken:
    """A store of which one call is replaced."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _InPlace(_Broken):
    """Overwrites byte by byte, where the old file is."""

    def put(self, name: str, data: bytes, durable: bool = True) -> None:
        if self._inner.get(name) is None:
            self._inner.put(name, data)
            return
        path = Path(self._inner.url.removeprefix("file://")) / name
        with path.open("r+b", buffering=0) as file:
            file.truncate(0)
            for at in range(0, len(data), 8192):
                file.write(data[at : at + 8192])


class _Torn(_Broken):
    """Creates the name first, exclusively, and fills the file afterwards."""

    def offer(self, data: bytes, beside: str) -> Any:
        return _TornOffer(Path(self._inner.url.removeprefix("file://")), data)


class _TornOffer:
    def __init__(self, root: Path, data: bytes) -> None:
        self._root, self._data = root, data

    def put(self, name: str) -> Committed | Conflict:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("xb", buffering=0) as file:
                for at in range(0, len(self._data), 8192):
                    file.write(self._data[at : at + 8192])
        except FileExistsError:
            return Conflict()
        return Committed()

    def close(self) -> None:
        self._data = b""


class _Stale(_Broken):
    """Lists from a cache."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._cache: dict[str, list[Any]] = {}

    def list(self, folder: str) -> Iterator[Any]:
        if folder not in self._cache:
            self._cache[folder] = list(self._inner.list(folder))
        return iter(self._cache[folder])


def open_in_place(url: str) -> Any:
    return _InPlace(open_store(url))


def open_torn(url: str) -> Any:
    return _Torn(open_store(url))


def open_stale(url: str) -> Any:
    return _Stale(open_store(url))


@pytest.mark.parametrize(
    ("opener", "check", "word"),
    [
        (open_in_place, "overwrite", "while it was replaced"),
        (open_torn, "race", "torn"),
        (open_stale, "fresh listing", "right after"),
    ],
)
def test_each_kind_of_fault_is_named(
    tmp_path: Path, opener: Callable[[str], Any], check: str, word: str
) -> None:
    report = check_store(str(tmp_path), processes=6, rounds=80, opener=f"{HERE}:{opener.__name__}")
    failed = {one.name: one.detail for one in report.checks if not one.passed}
    assert check in failed, str(report)
    assert word in failed[check] or "not whole" in failed[check]


def open_that_escapes(url: str) -> Any:
    class Escapes(_Broken):
        def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
            raise RuntimeError("password=hunter2")

    return Escapes(open_store(url))


def test_a_foreign_exception_is_a_fault_and_its_text_is_not_shown(tmp_path: Path) -> None:
    report = check_store(str(tmp_path), opener=f"{HERE}:open_that_escapes")
    assert "RuntimeError escaped" in report.faults[0]
    assert "hunter2" not in str(report)


# -- the report


def test_the_report_is_plain_data(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    report: Report = check_store(
        str(tmp_path),
        processes=2,
        rounds=4,
        big_bytes=1 << 20,
        progress=lambda *about: seen.append(about),
    )
    told = report.to_dict()
    assert told["passed"] is True
    assert told["faults"] == []
    assert {one["call"] for one in told["latencies"]} == {"put", "get", "miss", "list"}
    assert seen[0] == ("creates once", 0, 10)
    assert seen[-1] == ("done", 10, 10)
    assert "fit for a log" in str(report)


def test_time_is_bounded(tmp_path: Path) -> None:
    report = check_store(str(tmp_path), processes=2, rounds=100_000, seconds_max=6)
    assert not report.faults  # On a busy machine something may not be measured.
    assert report.rounds < 100_000
    assert report.seconds < 20


def test_a_failure_in_a_test_is_the_report(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="NOT fit for a log"):
        assert_store(str(tmp_path), opener=f"{HERE}:open_that_escapes")
