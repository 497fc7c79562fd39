"""Disks behind a server: what a broken connection, a taken name and a lost server come to."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from offsetlog.errors import StorageError, UnsafeFilesystemError
from offsetlog.storage import Committed, Conflict, Unknown, open_store
from tests.servers import sftp_server


@pytest.fixture(params=["sftp", "smb"])
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
