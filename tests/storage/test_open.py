"""From a URL to a store: what is safe, what is only read, what is missing."""

from __future__ import annotations

import builtins
import contextlib
import functools
import http.server
import os
import socket
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.counting_store import CountingStore
from offsetlog.core.topic.entry import Expire
from offsetlog.errors import InvalidRequestError, StorageError, UnsafeFilesystemError
from offsetlog.storage import Committed, Conflict, open_store
from offsetlog.storage import fsspec as fsspec_store
from offsetlog.storage.fsspec import LookThenWriteStore, ReadOnlyStore
from offsetlog.storage.local.disk import LocalStore
from offsetlog.storage.memory import MemoryStore
from offsetlog.storage.probe import probe_store
from offsetlog.testing import check_store


@pytest.mark.parametrize("form", ["{}", "file://{}", "file:{}", "local://{}"])
def test_local_forms(tmp_path: Path, form: str) -> None:
    store = open_store(form.format(tmp_path / "with space"))
    assert isinstance(store, LocalStore)
    assert store.is_local
    assert store.url == f"file://{tmp_path}/with space"
    store.put("a", b"x")
    assert (tmp_path / "with space" / "a").read_bytes() == b"x"


def test_a_path_object_and_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_store(tmp_path).url == f"file://{tmp_path}"  # type: ignore[arg-type]
    monkeypatch.chdir(tmp_path)
    store = open_store("logs")
    os.chdir("/")
    store.put("a", b"x")
    assert (tmp_path / "logs" / "a").exists()


@pytest.mark.parametrize("url", ["s3:/bucket/log", "dbfs:/log", "hdfs:/log", "S3A:/b", "nosuch:/x"])
def test_one_slash_is_no_local_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequestError, match="one slash after") as caught:
        open_store(url, single_writer=True)
    assert f"{url.split(':')[0]}://..." in caught.value.hint
    open_store(f"./{url}").put("a", b"x")
    assert (tmp_path / url / "a").exists()


@pytest.mark.parametrize("bad", ["", None, 5, "file://", "s3://", "gs://", "sftp://host"])
def test_what_names_no_place(bad: Any) -> None:
    with pytest.raises(InvalidRequestError):
        open_store(bad)


def test_options_that_a_disk_does_not_have() -> None:
    with pytest.raises(InvalidRequestError, match="auto_mkdir"):
        open_store("/tmp/x", auto_mkdir=True)
    with pytest.raises(InvalidRequestError, match="key"):
        open_store("memory://x", key="v")


def test_an_unknown_protocol() -> None:
    with pytest.raises(InvalidRequestError, match="nosuch") as caught:
        open_store("nosuch://host/x")
    assert "s3" in caught.value.hint


@pytest.mark.parametrize(
    ("url", "package"),
    [
        ("s3://b/x", "s3fs"),
        ("gs://b/x", "gcsfs"),
        ("gcs://b/x", "gcsfs"),
        ("abfs://b/x", "adlfs"),
        ("az://b/x", "adlfs"),
        ("sftp://h/x", "paramiko"),
        ("smb://h/s/x", "smbprotocol"),
    ],
)
def test_a_missing_package_is_named(
    url: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib

    plain = importlib.import_module

    def without(name: str, *about: Any) -> Any:
        if name == package:
            raise ImportError(name)
        return plain(name, *about)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(InvalidRequestError) as caught:
        open_store(url)
    assert package in str(caught.value)
    assert f"pip install {package}" in str(caught.value)


def test_opening_a_local_root_imports_no_client() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from offsetlog.storage import open_store; open_store('/tmp');"
        "heavy = {'fsspec', 's3fs', 'gcsfs', 'adlfs', 'paramiko', 'smbclient', 'aiohttp'};"
        "sys.exit(bool(heavy & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_probe_finds_what_ignores_the_condition(tmp_path: Path, rclone: Any, moto: Any) -> None:
    probe_store(open_store(str(tmp_path)))
    assert list(tmp_path.iterdir()) == []
    url, options = moto
    probe_store(open_store(f"{url}/probe", **options))
    url, options = rclone
    with pytest.raises(UnsafeFilesystemError, match="of 8 writers|a second file"):
        probe_store(open_store(f"{url}/probe", **options))


# -- memory


def test_memory_is_shared_by_url() -> None:
    one, two = open_store("memory://shared/x"), open_store("memory://shared/x")
    outer = open_store("memory://shared")
    assert isinstance(one, MemoryStore)
    assert isinstance(one.offer(b"a", "f/a").put("f/a"), Committed)
    assert isinstance(two.offer(b"b", "f/a").put("f/a"), Conflict)
    assert two.get("f/a") == outer.get("x/f/a") == b"a"
    one.close()
    assert two.get("f/a") == b"a"
    assert open_store("memory://other").get("f/a") is None
    outer.delete_tree("")
    assert list(two.folders("")) == []


def test_memory_keeps_what_was_put() -> None:
    store = open_store("memory://kept")
    data = bytearray(b"before")
    store.put("a", data)  # type: ignore[arg-type]
    data[:] = b"after!"
    assert store.get("a") == b"before"


def test_memory_after_a_fork_is_its_own() -> None:
    store = open_store("memory://forked")
    store.put("a", b"parent")
    pid = os.fork()
    if not pid:
        fine = store.get("a") == b"parent"
        store.put("b", b"child")
        os._exit(0 if fine else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert store.get("b") is None


# -- what is only read


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "a").write_bytes(b"0123456789")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *about: Any) -> None:
            """Be silent."""

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path))
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def refuses_writes(store: Any) -> None:
    for work in (
        lambda: store.offer(b"x", "f/b"),
        lambda: store.put("f/b", b"x"),
        lambda: store.delete(["f/a"]),
        lambda: store.delete_tree("f"),
    ):
        with pytest.raises(UnsafeFilesystemError) as caught:
            work()
        assert "s3://" in caught.value.hint
        assert "single_writer=True" in caught.value.hint


def test_http_is_read_only(web: str) -> None:
    store = open_store(web)
    assert isinstance(store, ReadOnlyStore)
    assert store.get("f/a") == b"0123456789"
    assert store.get("f/none") is None
    assert [one.name for one in store.list("f")] == ["f/a"]
    refuses_writes(store)


def test_a_cache_in_front_is_read_only(web: str) -> None:
    store = open_store(f"simplecache::{web}")
    assert store.get("f/a") == b"0123456789"
    refuses_writes(store)


def test_a_cache_in_front_of_what_would_be_safe_is_read_only(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    store = open_store(f"simplecache::file://{tmp_path}")
    assert store.get("a") == b"x"
    refuses_writes(store)


def test_an_archive_is_read_only(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("f/a", "inside")
    store = open_store(f"zip::file://{tmp_path}/a.zip")
    assert store.get("f/a") == b"inside"
    assert store.get("f/a", 2, 4) == b"si"
    assert store.get("f/b") is None
    assert [one.name for one in store.list("f")] == ["f/a"]
    assert list(store.folders("")) == ["f"]
    refuses_writes(store)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("ftp://127.0.0.1:1/x", {}),
        ("webhdfs://127.0.0.1:1/x", {}),
        ("hdfs://127.0.0.1:1/x", {}),
        ("dbfs://x", {"instance": "i", "token": "t-secret-t"}),
        ("http://127.0.0.1:1/x", {}),
    ],
)
def test_a_filesystem_without_a_proven_way_is_refused_before_it_is_reached(
    url: str, options: dict[str, Any]
) -> None:
    refuses_writes(open_store(url, **options))


def test_what_can_not_be_reached_is_an_error_of_ours() -> None:
    with pytest.raises((StorageError, InvalidRequestError)):
        open_store("ftp://127.0.0.1:1/x", timeout=1).get("a")


def test_single_writer_accepts_the_risk(tmp_path: Path) -> None:
    store = open_store(f"dir::file://{tmp_path}", single_writer=True)
    assert isinstance(store, LookThenWriteStore)
    assert isinstance(store.offer(b"a", "f/a").put("f/a"), Committed)
    assert isinstance(store.offer(b"b", "f/a").put("f/a"), Conflict)
    assert store.get("f/a") == b"a"
    store.put("f/a", b"c")
    assert store.get("f/a") == b"c"
    store.delete(["f/a", "f/never"])
    assert store.get("f/a") is None
    store.delete_tree("f")
    store.delete_tree("f")
    assert list(store.list("f")) == []


class Killed(BaseException):
    """The writer ends in the middle of a write, and cleans up nothing."""


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """From a call on the next write to a name with this in it stops halfway."""
    from fsspec.implementations.dirfs import DirFileSystem

    plain, at = DirFileSystem.pipe_file, [""]

    def pipe_file(self: Any, path: str, value: bytes, *rest: Any, **more: Any) -> None:
        if at[0] and at[0] in path.rpartition("/")[0] and not value.startswith(b"{"):
            plain(self, path, value[: len(value) // 2])
            monkeypatch.setattr(DirFileSystem, "rm_file", never)
            raise Killed
        plain(self, path, value, *rest, **more)

    def never(*about: Any) -> None:
        raise Killed

    monkeypatch.setattr(DirFileSystem, "pipe_file", pipe_file)
    rm_file = DirFileSystem.rm_file

    def die_at(part: str) -> None:
        at[0] = part
        monkeypatch.setattr(DirFileSystem, "rm_file", rm_file)

    yield die_at


def test_a_single_writer_that_is_killed_leaves_no_half_of_a_file(
    tmp_path: Path, dying: Callable[[str], None]
) -> None:
    url = f"dir::file://{tmp_path}/log"

    def store() -> LookThenWriteStore:
        found = open_store(url, single_writer=True)
        assert isinstance(found, LookThenWriteStore)
        return found

    one = store()
    assert isinstance(one.offer(b"first", "f/a").put("f/a"), Committed)
    dying("f")
    for work in (lambda: one.offer(b"second", "f/b").put("f/b"), lambda: one.put("f/a", b"other!")):
        with pytest.raises(Killed):
            work()
    dying("")
    assert store().get("f/a") == b"first"
    assert store().get("f/b") is None
    assert [info.name for info in store().list("f")] == ["f/a"], "temporaries are no files"
    assert isinstance(store().offer(b"second", "f/b").put("f/b"), Committed)
    assert store().sweep("f", 0) == 0
    assert store().sweep("f", 2**60) == 2
    there = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    assert there == ["a", "b"]


@pytest.mark.parametrize("part", ["/_log/", "/_snapshot", "/_index", "/partition="])
def test_a_log_of_a_single_writer_outlives_a_kill(
    tmp_path: Path, dying: Callable[[str], None], part: str
) -> None:
    """In an append, and in upkeep, which replaces entries by stubs."""
    import offsetlog

    url = f"dir::file://{tmp_path}/log"

    def send(log: Any, count: int, size: int) -> None:
        with log.producer() as producer:
            for _ in range(count):
                producer.send("t", b"x" * size).result()

    with offsetlog.open(url, single_writer=True) as log:
        log.create_topic("t")
        send(log, 12, 10)
        handle = log.open_topic("t")
        dying(part)
        with contextlib.suppress(Killed):
            log.maintain("t", grace_ms=0)
        with contextlib.suppress(Killed):
            handle.decide(Expire(0))
        dying("")
    with offsetlog.open(url, single_writer=True) as log:
        assert log.topic("t").end_offsets() == {0: 12}
        send(log, 2, 10)
        log.maintain("t", grace_ms=0)
        consumer = log.consumer(auto_offset_reset="earliest")
        consumer.assign([("t", 0)])
        assert len(consumer.poll(30.0)) == 14
        assert log.verify("t")[0].sound


def test_what_a_filesystem_without_a_rename_can_not_do_is_left_undone(tmp_path: Path) -> None:
    import offsetlog

    url = f"dir::memory://{tmp_path.name}/log"
    store = open_store(url, single_writer=True)
    assert isinstance(store, LookThenWriteStore)
    with offsetlog.open(url, single_writer=True) as log:
        log.create_topic("t")
        with log.producer() as producer:
            for number in range(12):
                producer.send("t", b"%d" % number).result()
        done = log.maintain("t", grace_ms=0)[0]
        assert done.new_segments == 1
        assert bool(done.stubs) is store.replaces_at_once
        assert log.verify("t")[0].sound


@pytest.mark.parametrize("refuses", ["all", "to replace"])
def test_a_rename_is_believed_when_it_was_seen(
    tmp_path: Path, refuses: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsspec.implementations.dirfs import DirFileSystem

    plain = DirFileSystem.mv

    def mv(self: Any, old: str, new: str, *rest: Any, **more: Any) -> None:
        if refuses == "all" or self.exists(new):
            raise OSError("no")
        plain(self, old, new, *rest, **more)

    monkeypatch.setattr(DirFileSystem, "mv", mv)
    store = open_store(f"dir::file://{tmp_path}", single_writer=True)
    assert isinstance(store, LookThenWriteStore)
    assert not store.replaces_at_once
    assert isinstance(store.offer(b"a", "f/a").put("f/a"), Committed)
    store.put("f/a", b"b")
    assert store.get("f/a") == b"b"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["a"]


def test_single_writer_changes_nothing_where_there_is_a_proven_way(tmp_path: Path) -> None:
    assert isinstance(open_store(str(tmp_path), single_writer=True), LocalStore)


def test_another_package_brings_a_store_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "mine-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[offsetlog.stores]\nmine = mine_store:open_mine\ns3 = mine_store:open_mine\n"
        "broken = mine_store:nosuch\nstrange = mine_store:open_strange\n"
    )
    (tmp_path / "mine_store.py").write_text(
        "from offsetlog.storage.local.disk import LocalStore\n"
        "def open_mine(url, folder):\n    return LocalStore(folder)\n"
        "def open_strange(url):\n    return object()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    store = open_store("mine://somewhere", folder=str(tmp_path / "root"))
    assert isinstance(store.offer(b"x", "f/a").put("f/a"), Committed)
    assert (tmp_path / "root" / "f" / "a").exists()
    report = check_store(
        "mine://x", {"folder": str(tmp_path / "root")}, processes=2, rounds=4, big_bytes=1 << 20
    )
    assert report.passed
    assert type(open_store("s3://bucket/x")).__name__ == "S3Store", "ours can't be replaced"
    with pytest.raises(InvalidRequestError, match="broken"):
        open_store("broken://x")
    with pytest.raises(InvalidRequestError, match="not derived from offsetlog.storage.Store"):
        open_store("strange://x")


# -- counting


def test_counting(tmp_path: Path) -> None:
    store = CountingStore(open_store(str(tmp_path)))
    offer = store.offer(b"12345", "f/a")
    assert store.total == 0
    assert isinstance(offer.put("f/a"), Committed)
    assert isinstance(offer.put("f/a"), Conflict)
    offer.close()
    store.put("f/b", b"123")
    assert store.get("f/a") == b"12345"
    assert store.get("f/none") is None
    assert len(list(store.list("f"))) == 2
    assert list(store.folders("")) == ["f"]
    assert store.info("f/a") is not None
    store.settle("f")
    store.delete(["f/b"])
    store.delete_tree("f")
    assert store.calls == {
        "create": 2, "put": 1, "get": 2, "list": 1, "folders": 1, "info": 1, "settle": 1,
        "delete": 1, "delete_tree": 1,
    }  # fmt: skip
    assert (store.bytes_up, store.bytes_down) == (13, 5)
    store.reset()
    assert store.total == store.bytes_up == 0
    store.close()


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert builtins.print is print
    open_store(str(tmp_path)).put("a", b"x")
    assert capfd.readouterr() == ("", "")


def test_an_address_that_stays_what_it_is(tmp_path: Path) -> None:
    """A mount point does not, nor does a filesystem upon another one."""
    stay = {
        "s3://b/x": True,
        "http://127.0.0.1:1/x": True,
        str(tmp_path): False,
        f"simplecache::file://{tmp_path}": False,
        "memory://x": False,
    }
    assert {url: open_store(url).stays for url in stay} == stay


# -- web servers without an end


class _Endless:
    """A web server whose answers do not end; it counts what it could send."""

    def __init__(self, head: str) -> None:
        self._head = f"HTTP/1.1 {head}\r\nContent-Type: text/html\r\n\r\n".encode()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/log"
        self.sent = 0

    def __enter__(self) -> _Endless:
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def __exit__(self, *about: object) -> None:
        self._socket.close()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(
                    target=self._send, args=(self._socket.accept()[0],), daemon=True
                ).start()

    def _send(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            connection.sendall(self._head)
            while self.sent < 256 << 20:
                self.sent += connection.send(bytes(65536))


@pytest.mark.parametrize("status", ["200 OK", "206 Partial Content"])
def test_of_a_web_server_without_an_end_no_more_is_taken_than_was_asked_for(
    status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsspec_store, "MOST_LISTING", 1 << 20)
    monkeypatch.setattr(fsspec_store, "MOST_UNBOUNDED", 2 << 20)
    with _Endless(status) as server:
        store = open_store(server.url)
        assert store.get("a", 0, 65536) == bytes(65536)
        refused: list[Callable[[], object]] = [
            lambda: store.get("a", -8),
            lambda: store.get("a"),
            lambda: list(store.list("f")),
            lambda: list(store.folders("f")),
        ]
        for call in refused:
            with pytest.raises(StorageError, match="it sends ") as caught:
                call()
            assert not caught.value.retryable
        assert server.sent < 64 << 20  # What lies in the buffers of the system is sent, too.
