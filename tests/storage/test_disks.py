"""Disks behind a server: what a broken connection, a taken name and a lost server come to."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from offsetlog.errors import StorageError, UnsafeFilesystemError
from offsetlog.storage import Committed, Conflict, Unknown, open_store
from offsetlog.storage.shared import smb as smb_storage
from tests.servers import sftp_server


@pytest.fixture(params=["sftp", "smb", "samba"])
def store(request: pytest.FixtureRequest) -> Any:
    url, options = request.getfixturevalue(request.param)
    store = open_store(f"{url}/disks", **options)
    yield store
    store.delete_tree("")
    store.close()


def test_the_temporary_is_used_again_and_leaves_nothing(store: Any) -> None:
    offer = store.offer(b"mine", "f/a")
    assert isinstance(offer.put("f/a"), Committed)
    late = store.offer(b"late", "f/a")
    assert isinstance(late.put("f/a"), Conflict)
    assert isinstance(late.put("f/b"), Committed)
    assert isinstance(late.put("f/b"), Conflict)
    late.close()
    offer.close()
    assert store.get("f/a") == b"mine"
    assert store.get("f/b") == b"late"
    assert sorted(found.name for found in store._of_folder("f")) == ["a", "b"]


def test_sweep(store: Any) -> None:
    store._folder("f")
    store._write_new(store._path("f/.tmp-left"), b"x", True)
    assert list(store.list("f")) == []
    assert store.sweep("f", 1000) == 0
    assert store.sweep("f", int((time.time() + 60) * 1000)) == 1
    assert list(store._of_folder("f")) == []


def test_a_folder_that_was_removed_is_made_again(store: Any) -> None:
    assert isinstance(store.offer(b"x", "f/a").put("f/a"), Committed)
    other = open_store(store.url, **{k: v for k, v in store._options.items() if "skip" not in k})
    other.delete_tree("f")
    other.close()
    assert isinstance(store.offer(b"y", "f/a").put("f/a"), Committed)
    assert store.get("f/a") == b"y"


def test_a_forked_process_connects_anew(store: Any) -> None:
    assert isinstance(store.offer(b"parent", "f/a").put("f/a"), Committed)
    pid = os.fork()
    if not pid:
        try:
            fine = store.get("f/a") == b"parent"
            fine &= isinstance(store.offer(b"child", "f/b").put("f/b"), Committed)
        except BaseException:
            fine = False
        os._exit(0 if fine else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert store.get("f/b") == b"child"


def test_a_share_without_hard_links_is_refused(smb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import smbclient

    class NoLinks(OSError):
        ntstatus = 0xC00000BB

    def refuse(*about: object, **more: object) -> None:
        raise NoLinks("not supported")

    monkeypatch.setattr(smbclient, "link", refuse)
    store = open_store(f"{smb.url}/nolinks", **smb.options)
    with pytest.raises(UnsafeFilesystemError, match="no hard links"):
        store.offer(b"x", "f/a").put("f/a")
    store.close()


def test_a_server_that_goes_away_and_comes_back() -> None:
    with sftp_server.running() as place:
        store = open_store(place.url, **place.options)
        assert isinstance(store.offer(b"x", "f/a").put("f/a"), Committed)
        waiting = store.offer(b"y", "f/b")
        assert isinstance(waiting.put("f/a"), Conflict)
        store.fs.client.get_transport().close()  # type: ignore[attr-defined]
        result = waiting.put("f/b")
        assert isinstance(result, Unknown), "the rename may have been sent"
        assert isinstance(waiting.put("f/b"), Committed), "with a new connection"
        assert store.get("f/b") == b"y"
        options = place.options
        url = place.url
    gone = open_store(url, **{**options, "timeout": 2})
    with pytest.raises(StorageError):
        gone.get("f/a")
    with pytest.raises(StorageError) as caught:
        gone.offer(b"x", "f/c").put("f/c")
    assert not caught.value.may_have_landed, "its name was never asked for"


def disk_of(store: Any) -> Path:
    """The folder of this machine that the server's disk is."""
    return Path("/" + store._root.strip("/"))


@pytest.fixture
def linked(sftp: Any, tmp_path: Path) -> Iterator[tuple[Any, Path, Path]]:
    """(store, its folder, a folder outside of it)."""
    url, options = sftp
    store = open_store(f"{url}/links", **options)
    store.put("t/f/a", b"inside")
    outside = tmp_path / "outside"
    (outside / "f").mkdir(parents=True)
    (outside / "f" / "a").write_bytes(b"outside")
    yield store, disk_of(store), outside
    store.close()
    fresh = open_store(f"{url}/links", **options)
    fresh.delete_tree("")
    fresh.close()


ASKS = {
    "get": lambda store: store.get("t/f/a"),
    "range": lambda store: store.get("t/f/a", 0, 1),
    "info": lambda store: store.info("t/f/a"),
    "list": lambda store: list(store.list("t/f")),
    "folders": lambda store: list(store.folders("t/f")),
    "put": lambda store: store.put("t/f/a", b"x"),
    "create": lambda store: store.offer(b"x", "t/f/b").put("t/f/b"),
    "delete": lambda store: store.delete(["t/f/a"]),
    "tree": lambda store: store.delete_tree("t/f"),
    "sweep": lambda store: store.sweep("t/f", 2**60),
}


@pytest.mark.parametrize("where", ["t", "t/f"])
@pytest.mark.parametrize("ask", ASKS)
def test_no_folder_that_is_a_link_is_followed_over_sftp(linked: Any, ask: str, where: str) -> None:
    store, disk, outside = linked
    (disk / where).rename(disk / "moved")
    (disk / where).symlink_to(outside if where == "t" else outside / "f")
    store._made_folders.clear()  # Whoever knows nothing yet.
    getattr(store, "_plain", set()).clear()
    with pytest.raises(StorageError, match=f"'{where}' is a symbolic link"):
        ASKS[ask](store)
    assert [path.name for path in (outside / "f").iterdir()] == ["a"]
    assert (outside / "f" / "a").read_bytes() == b"outside"


@pytest.mark.parametrize("ask", ["list", "folders", "sweep", "tree", "put"])
def test_what_lists_or_replaces_looks_again(linked: Any, ask: str) -> None:
    """Also where the folder was known: whoever deletes goes by a listing."""
    store, disk, outside = linked
    assert store.get("t/f/a") == b"inside"
    (disk / "t" / "f").rename(disk / "moved")
    (disk / "t" / "f").symlink_to(outside / "f")
    with pytest.raises(StorageError, match="'t/f' is a symbolic link"):
        ASKS[ask](store)
    assert (outside / "f" / "a").read_bytes() == b"outside"


def test_a_file_that_is_a_link_is_not_read_over_sftp(linked: Any) -> None:
    store, disk, outside = linked
    (disk / "t" / "f" / "a").unlink()
    (disk / "t" / "f" / "a").symlink_to(outside / "f" / "a")
    for ask in ("get", "range", "info"):
        with pytest.raises(StorageError, match="'t/f/a' is a symbolic link"):
            ASKS[ask](store)
    assert list(store.list("t/f")) == []
    assert isinstance(store.offer(b"x", "t/f/a").put("t/f/a"), Conflict)
    store.put("t/f/a", b"mine")
    assert (outside / "f" / "a").read_bytes() == b"outside"
    assert store.get("t/f/a") == b"mine"


def test_the_root_itself_may_lie_behind_a_link(sftp: Any, linked: Any, tmp_path: Path) -> None:
    _, disk, _ = linked
    (tmp_path / "door").symlink_to(disk)
    url, options = sftp
    store = open_store(f"sftp://{url.split('/')[2]}{tmp_path}/door", **options)
    assert store.get("t/f/a") == b"inside"
    store.put("t/g/b", b"new")
    assert (disk / "t" / "g" / "b").read_bytes() == b"new"
    store.close()


def reparsed(one: Any, tag: int) -> Any:
    about = SimpleNamespace(
        file_attributes=one.smb_info.file_attributes | 0x400,
        ea_size=tag,
        last_write_time=one.smb_info.last_write_time,
        end_of_file=0,
    )
    return SimpleNamespace(name=one.name, smb_info=about)


@pytest.mark.parametrize("tag", [0xA000000C, 0xA0000003], ids=["link", "junction"])
def test_a_reparse_point_of_a_share_is_not_followed(
    smb: Any, tag: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Windows shows them; the tests' server follows links by itself and shows none."""
    url, options = smb
    store = open_store(f"{url}/reparse", **options)
    store.put("t/f/a", b"inside")
    assert store.get("t/f/a") == b"inside"
    plain = store._ask

    def ask(call: str, *args: Any, **settings: Any) -> Any:
        found = plain(call, *args, **settings)
        if call == "lstat" and str(args[0]).endswith("\\t\\f"):
            return found._replace(st_reparse_tag=tag)
        if call == "scandir":
            return [reparsed(one, tag) if one.name == "f" else one for one in found]
        return found

    monkeypatch.setattr(store, "_ask", ask)
    assert list(store.folders("t")) == []
    for name in ("list", "folders", "put", "tree", "sweep"):
        with pytest.raises(StorageError, match="'t/f' is a symbolic link"):
            ASKS[name](store)
    store._forget_folders()
    for name in ("get", "info", "create", "delete"):
        with pytest.raises(StorageError, match="'t/f' is a symbolic link"):
            ASKS[name](store)
    monkeypatch.undo()
    assert store.get("t/f/a") == b"inside"
    store.delete_tree("")
    store.close()


def test_threads_that_come_first_together_share_one_connection(store: Any) -> None:
    """Each used to open its own, of which all but one stayed open for ever."""
    store.put("f", b"x")
    fresh = open_store(store.url, **store._options)
    made, make = [], fresh._make

    def count() -> Any:
        made.append(1)
        time.sleep(0.05)
        return make()

    fresh._make = count
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(fresh.get, ["f"] * 8)) == [b"x"] * 8
    fresh.close()
    assert len(made) == 1


class _SilentOnce:
    """A way to a server on which the first connection gets one answer only: a login that the
    server never answers."""

    def __init__(self, port: int) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._upstream = port
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                self.connections += 1
                server = socket.create_connection(("127.0.0.1", self._upstream))
                most = 1 if self.connections == 1 else 10**9
                for args in ((client, server, 10**9), (server, client, most)):
                    threading.Thread(target=self._pass_on, args=args, daemon=True).start()

    @staticmethod
    def _pass_on(source: socket.socket, target: socket.socket, most: int) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if most > 0:
                    target.sendall(data)
                most -= 1
            target.close()

    def close(self) -> None:
        self._server.close()


def test_a_login_that_the_server_does_not_answer_is_tried_again(
    smb: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smb_storage, "_LOGIN_SECONDS", 1)
    way = _SilentOnce(smb.options["port"])
    store = open_store(smb.url, **{**smb.options, "port": way.port})
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(store.get("none")), daemon=True)
    thread.start()
    thread.join(20)
    assert answers == [None]
    assert way.connections == 2
    store.close()
    way.close()
