"""Local disks that say no: full, read-only, forbidden; real ones wherever we may make them."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from offsetlog.errors import StorageError
from offsetlog.storage import Committed
from offsetlog.storage.local import disk as local_module
from offsetlog.storage.local.disk import LocalStore
from tests.storage.local.test_disk import create, files


@contextlib.contextmanager
def small_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A real disk of 256 KiB where we may mount one, else one whose ``write`` says it is full."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if (
        os.geteuid() == 0
        and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    ):
        try:
            yield "real"
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)
        return
    plain = os.write

    def full(fd: int, data: Any) -> int:
        if len(data) > 256 << 10:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return plain(fd, data)

    with monkeypatch.context() as patched:
        patched.setattr(local_module.os, "write", full)
        yield "told"


@pytest.mark.parametrize("unnamed", [True, False])
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unnamed: bool) -> None:
    with small_disk(tmp_path / "disk", monkeypatch):
        store = LocalStore(str(tmp_path / "disk"), unnamed_temporaries=unnamed)
        assert isinstance(create(store, "f/a"), Committed)
        for work in (lambda: create(store, "f/b", b"x" * (1 << 20)),
                     lambda: store.put("f/a", b"x" * (1 << 20))):  # fmt: skip
            with pytest.raises(StorageError, match="the disk is full") as caught:
                work()
            assert caught.value.retryable
            assert not caught.value.may_have_landed
        assert files(tmp_path / "disk") == ["f/a"], "nothing is left behind"
        assert store.get("f/a") == b"data"
        assert store.get("f/b") is None
        assert isinstance(create(store, "f/b", b"small"), Committed)
        store.close()


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    """Also without rights to mount anything: the kernel says no in the middle of a write."""
    told = in_child(tmp_path, lambda store: create(store, "f/a", b"x" * 100_000), limit=50_000)
    assert told["error"] == "StorageError"
    assert "larger than is allowed" in told["text"]
    assert files(tmp_path) == []


def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    create(store, "f/a")
    (tmp_path / "f").chmod(0o555)
    tmp_path.chmod(0o755)
    try:
        for work in (
            lambda store: create(store, "f/b"),
            lambda store: store.put("f/a", b"x"),
            lambda store: create(store, "f/deeper/b"),
            lambda store: store.delete(["f/a"]),
        ):
            told = in_child(tmp_path, work, nobody=True)
            assert told["error"] == "StorageError"
            assert "permission denied" in told["text"]
            assert not told["retryable"]
        read = in_child(tmp_path, lambda store: store.get("f/a") == b"data", nobody=True)
        assert read == {"result": "True"}
    finally:
        (tmp_path / "f").chmod(0o755)


def test_a_read_only_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with small_disk(tmp_path / "disk", monkeypatch) as kind:
        root = str(tmp_path / "disk")
        create(LocalStore(root), "f/a")
        if kind == "real":
            subprocess.run(["mount", "-o", "remount,ro", root], check=True)
        else:
            _refuse_writes(monkeypatch)
        store = LocalStore(root)
        for work in (lambda: create(store, "f/b"), lambda: store.put("f/a", b"x")):
            with pytest.raises(StorageError, match="read-only filesystem") as caught:
                work()
            assert not caught.value.may_have_landed
        assert store.get("f/a") == b"data", "reading stays possible"
        assert [one.name for one in store.list("f")] == ["f/a"]
        store.close()


def _refuse_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = os.open

    def read_only(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return plain(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(local_module.os, "open", read_only)


def in_child(
    root: Path, work: Callable[[LocalStore], object], *, nobody: bool = False, limit: int = 0
) -> dict[str, Any]:
    """What the work comes to in a process with fewer rights; root drops its own."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        import resource

        told: dict[str, Any]
        try:
            if limit:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            if nobody and os.geteuid() == 0:
                for above in root.parents:
                    if above.name.startswith(("pytest-", "popen-")):
                        above.chmod(0o755)
                os.setgid(65534)
                os.setuid(65534)
            told = {"result": repr(work(LocalStore(str(root))))}
        except StorageError as error:
            told = {"error": type(error).__name__, "text": str(error), "retryable": error.retryable}
        except BaseException as error:
            told = {"escaped": repr(error)}
        os.write(write, json.dumps(told).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer: dict[str, Any] = json.loads(pipe.read())
    os.waitpid(pid, 0)
    return answer
