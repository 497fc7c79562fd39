"""Put-if-absent is proven by who makes a root, and again by who writes to it on a server."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import offsetlog
from offsetlog.client.log import Log
from offsetlog.errors import InvalidRequestError, StorageError, UnsafeFilesystemError
from offsetlog.format.names import ROOT_FILE
from offsetlog.storage import Store, open_store
from offsetlog.storage.local.disk import LocalStore
from offsetlog.storage.local.files import is_on_fuse
from offsetlog.storage.probe import probe_store
from offsetlog.testing import check_store
from tests.servers import latency_s3
from tests.servers.relay import Proxy


def _files(store: Store, folder: str = "") -> Iterator[str]:
    for info in store.list(folder):
        yield info.name
    for name in store.folders(folder):
        yield from _files(store, f"{folder}/{name}" if folder else name)


def _contents(store: Store) -> dict[str, bytes | None]:
    return {name: store.get(name) for name in _files(store)}


@pytest.fixture
def careless() -> Iterator[Any]:
    with latency_s3.running(0, 0, "ignored") as place:
        yield place


@pytest.fixture
def racing() -> Iterator[Any]:
    with latency_s3.running(0, 0, "raced") as place:
        yield place


def test_a_log_that_was_moved_to_a_careless_server_is_read_only(
    latency_s3: Any, careless: Any, tmp_path: Path
) -> None:
    url, options = latency_s3
    url = f"{url}/{tmp_path.name}"
    with offsetlog.open(url, **options) as log, log.producer() as producer:
        log.create_topic("orders")
        producer.send("orders", b"1").result()
        moved = _contents(log.store)
    target = open_store(f"{careless.url}/moved", **careless.options)
    for name, data in moved.items():
        target.put(name, data or b"")

    def attempt(log: Log) -> None:
        with log.producer() as producer:
            producer.send("orders", b"2").result()

    with offsetlog.open(target.url, **careless.options) as log:
        for _ in range(2):
            with pytest.raises(UnsafeFilesystemError, match=f"made {ROOT_FILE} anew"):
                attempt(log)
        with pytest.raises(UnsafeFilesystemError, match=f"made {ROOT_FILE} anew"):
            log.create_topic("more")
        with pytest.raises(UnsafeFilesystemError, match=f"made {ROOT_FILE} anew"):
            log.group("billing").reset("orders", to="earliest", dry_run=False)
        with log.consumer(topics=["orders"], auto_offset_reset="earliest") as consumer:
            assert [record.value for record in consumer.poll(5)] == [b"1"]
    assert _contents(target) == moved


def test_the_proof_is_one_request_of_a_process(latency_s3: Any, tmp_path: Path) -> None:
    url, options = latency_s3
    url = f"{url}/{tmp_path.name}"
    with offsetlog.open(url, **options) as log:
        log.create_topic("orders")
    with Proxy(latency_s3.http_port) as proxy:
        options = {**options, "endpoint_url": proxy.url}
        for expected in (1, 0):
            with offsetlog.open(url, **options) as log:
                with log.consumer(topics=["orders"], auto_offset_reset="earliest") as consumer:
                    consumer.poll()
                assert proxy.counts["PUT"] == 0, "who reads proves nothing"
                with log.producer() as producer:
                    proxy.reset()
                    threads = [
                        threading.Thread(target=producer.send, args=("orders", b"x"))
                        for _ in range(4)
                    ]
                    for thread in threads:
                        thread.start()
                    for thread in threads:
                        thread.join()
                    producer.flush()
                    proofs = [p for p in proxy.paths if p.startswith("PUT") and ROOT_FILE in p]
                    proxy.reset()
            assert len(proofs) == expected


def test_a_proof_without_an_answer_writes_nothing(
    latency_s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, options = latency_s3
    url = f"{url}/{tmp_path.name}"
    with offsetlog.open(url, **options) as log:
        log.create_topic("orders")
        before = _contents(log.store)
    with Proxy(latency_s3.http_port) as proxy:
        options = {
            **options, "endpoint_url": proxy.url, "config_kwargs": {"retries": {"max_attempts": 0}},
        }  # fmt: skip
        with offsetlog.open(url, **options) as log:
            log.store.fs.retries = 1  # type: ignore[attr-defined]
            producer = log.producer()
            proxy.lose(5, "PUT", ROOT_FILE)
            proxy.lose(5, "PUT", ROOT_FILE)
            with pytest.raises(StorageError, match="No answer came from") as caught:
                producer.send("orders", b"1").result()
            assert not caught.value.may_have_landed
            assert _contents(log.store) == before
            proxy._losses.clear()
            assert producer.send("orders", b"2").result().offset == 0


@pytest.mark.parametrize("attempt", range(3))
def test_a_server_that_races_gets_no_root(racing: Any, attempt: int) -> None:
    with offsetlog.open(f"{racing.url}/{attempt}", **racing.options) as log:
        with pytest.raises(UnsafeFilesystemError, match="of 8 writers"):
            log.create_topic("orders")
        assert list(_files(log.store)) == []


def test_doctor_has_all_at_a_name_at_one_moment(racing: Any) -> None:
    report = check_store(
        f"{racing.url}/doctor", racing.options, processes=4, rounds=16, big_bytes=1 << 20
    )
    race = next(check for check in report.checks if check.name == "race")
    assert not race.passed
    print(report.rounds_with_one_winner, report.rounds)
    assert report.rounds_with_one_winner <= report.rounds * 0.75


# -- a disk that is a program's

MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
31 27 {number} / /home rw,relatime shared:1 master:2 - {kind} {kind} rw,user_id=0
"""


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("fuse.unionfs-fuse", True), ("fuseblk", True), ("fuse", True), ("ext4", False),
     ("fusectl", False)],
)  # fmt: skip
def test_a_disk_of_a_program_is_known_by_its_mount(
    tmp_path: Path, kind: str, expected: bool
) -> None:
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS.format(number=f"{os.major(device)}:{os.minor(device)}", kind=kind))
    assert is_on_fuse(str(tmp_path / "not" / "yet"), str(mounts)) is expected
    assert not is_on_fuse(str(tmp_path), str(tmp_path / "none"))


class _Gaps(LocalStore):
    """A file that is replaced is missing for a moment."""

    needs_probe = True

    def put(self, name: str, data: bytes | memoryview, durable: bool = True) -> None:
        self.delete([name])
        super().put(name, data, durable)


def test_a_disk_that_shows_gaps_gets_no_root(tmp_path: Path) -> None:
    store = _Gaps(str(tmp_path / "log"))
    with Log(store) as log, pytest.raises(UnsafeFilesystemError, match="while it is replaced"):
        log.create_topic("orders")
    assert list(_files(store)) == []


def test_a_sound_disk_passes_the_probe(tmp_path: Path) -> None:
    probe_store(LocalStore(str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


# -- one root by two addresses


def test_groups_of_a_disk_are_not_empty_by_another_address(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with offsetlog.open(str(path)) as log:
        log.create_topic("orders")
        with log.producer() as producer:
            producer.send("orders", b"1").result()
        log.group("billing").reset("orders", to="earliest", dry_run=False)
    with offsetlog.open(f"simplecache::file://{path}") as log:
        for look in (log.groups, log.positions, log.group("billing").describe, log.overview):
            with pytest.raises(InvalidRequestError, match="as a Delta table"):
                look()
        with log.consumer(topics=["orders"], auto_offset_reset="earliest") as consumer:
            assert [record.value for record in consumer.poll(5)] == [b"1"]
        [fault] = [fault for report in log.verify() for fault in report.faults]
        assert "as a Delta table" in fault


def test_a_log_without_groups_has_none_by_another_address(tmp_path: Path) -> None:
    with offsetlog.open(str(tmp_path / "log")) as log:
        log.create_topic("orders")
    with offsetlog.open(f"simplecache::file://{tmp_path / 'log'}") as log:
        assert list(log.groups()) == []
        assert not [fault for report in log.verify() for fault in report.faults]


# -- what is somebody's


def test_nothing_is_left_beside_a_table_of_somebody(tmp_path: Path) -> None:
    where = tmp_path / "sales"
    write_deltalake(str(where), pa.table({"amount": [1, 2]}))
    before = {path for path in where.rglob("*") if path.is_file()}
    with offsetlog.open(str(tmp_path / "log"), offsets_table=str(where)) as log:
        log.create_topic("orders")
        with pytest.raises(InvalidRequestError, match="of another shape"):
            log.consumer("billing", topics=["orders"])
    assert {path for path in where.rglob("*") if path.is_file()} == before


def test_nothing_is_left_where_a_disk_is_unmounted(tmp_path: Path) -> None:
    root, away = tmp_path / "log", tmp_path / "away"
    with offsetlog.open(str(root)) as log:
        log.create_topic("orders")
        consumer = log.consumer("billing", topics=["orders"])
        consumer.poll()
        member = consumer.member
        assert member is not None
        root.rename(away)
        root.mkdir()
        with pytest.raises(StorageError):
            log.offsets_table.port.beat(member, "9")
        assert list(root.iterdir()) == []
        root.rmdir()
        away.rename(root)
        consumer.poll()
        consumer.close()


def test_verify_of_a_root_that_is_gone_names_it(tmp_path: Path) -> None:
    root = tmp_path / "log"
    with offsetlog.open(str(root)) as log:
        log.create_topic("orders")
        root.rename(tmp_path / "away")
        with pytest.raises(StorageError, match=f"is not at file://{root}"):
            log.verify()


def test_verify_of_a_root_that_is_gone_from_a_server_names_it(
    latency_s3: Any, tmp_path: Path
) -> None:
    url = f"{latency_s3.url}/{tmp_path.name}"
    with offsetlog.open(url, **latency_s3.options) as log:
        log.create_topic("orders")
        log.verify()
        log.store.delete([ROOT_FILE])
        with pytest.raises(StorageError, match="is not at s3://"):
            log.verify()


def test_what_refused_writers_left_is_a_note(tmp_path: Path) -> None:
    with offsetlog.open(str(tmp_path / "log")) as log:
        log.create_topic("orders")
        part = tmp_path / "log" / "orders" / "partition=0"
        part.mkdir(exist_ok=True)
        last = "part-00000-2f2cd7b1-43c4-4ac1-8c4c-bd5e6c2f5b6b.c000.snappy.parquet"
        (part / last).write_bytes(b"PAR1")
        (part / f".{last}.crc").write_bytes(b"crc")
        [report] = log.verify("orders")
        assert report.sound
        assert [note for note in report.notes if "and 1 more is of a writer" in note]
        (part / "mine.parquet").write_bytes(b"PAR1")
        assert log.verify("orders")[0].faults == (
            "orders/partition=0/mine.parquet is not the name of a segment",
        )
