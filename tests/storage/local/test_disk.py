"""The local disk: where names lead, what a kill leaves, what a full disk does."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offsetlog.errors import InvalidRequestError, StorageError, UnsafeFilesystemError
from offsetlog.storage import Committed, Conflict, Unknown
from offsetlog.storage.local import disk as local_module
from offsetlog.storage.local import files as local_files
from offsetlog.storage.local.disk import LocalStore
from offsetlog.testing.racing import parse, payload


def create(store: LocalStore, name: str, data: bytes = b"data") -> Any:
    offer = store.offer(data, name)
    try:
        return offer.put(name)
    finally:
        offer.close()


@pytest.fixture(params=[True, False], ids=["unnamed", "named"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "root"), unnamed_temporaries=request.param)


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


# -- temporaries


def test_a_temporary_has_no_name_where_the_disk_can_do_that(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    create(store, "f/taken")
    offer = store.offer(b"data", "f/a")
    assert isinstance(offer.put("f/taken"), Conflict)
    assert files(tmp_path) == ["f/taken"]
    assert isinstance(offer.put("f/a"), Committed)
    assert files(tmp_path) == ["f/a", "f/taken"]
    offer.close()


def test_a_named_temporary_is_gone_when_the_create_returns(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path), unnamed_temporaries=False)
    create(store, "f/taken")
    offer = store.offer(b"data", "f/a")
    assert isinstance(offer.put("f/taken"), Conflict)
    temporary, _ = files(tmp_path)
    assert temporary.startswith("f/.tmp-")
    assert [found.name for found in store.list("f")] == ["f/taken"], "it is no entry"
    assert isinstance(offer.put("f/a"), Committed)
    assert files(tmp_path) == ["f/a", "f/taken"]
    assert isinstance(offer.put("f/b"), Committed), "the bytes can be put again"
    assert isinstance(offer.put("f/b"), Conflict)
    offer.close()
    assert files(tmp_path) == ["f/a", "f/b", "f/taken"]
    assert store.get("f/b") == b"data"


def test_a_disk_that_has_no_unnamed_files_gets_named_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = os.open

    def without(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "no such thing here")
        return plain(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(local_module.os, "open", without)
    store = LocalStore(str(tmp_path))
    create(store, "f/taken")
    offer = store.offer(b"data", "f/a")
    assert isinstance(offer.put("f/taken"), Conflict)
    assert files(tmp_path)[0].startswith("f/.tmp-")
    assert isinstance(offer.put("f/a"), Committed)
    offer.close()
    assert files(tmp_path) == ["f/a", "f/taken"]


def test_a_disk_without_hard_links_is_refused(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*about: object, **more: object) -> None:
        raise OSError(errno.EPERM, "no links")

    monkeypatch.setattr(local_module.os, "link", no_links)
    with pytest.raises(UnsafeFilesystemError, match="no hard links"):
        create(store, "f/a")


def test_sweeping_takes_only_old_temporaries(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    create(store, "f/a")
    for age, name in ((1000, ".tmp-old"), (0, ".tmp-new")):
        path = tmp_path / "f" / name
        path.write_bytes(b"x")
        os.utime(path, (time.time() - age,) * 2)
    assert store.sweep("f", int((time.time() - 100) * 1000)) == 1
    assert files(tmp_path) == ["f/.tmp-new", "f/a"]


# -- names


@pytest.mark.parametrize(
    "name",
    ["", "/etc/passwd", "../up", "a/../../up", "a//b", "a/./b", "a/", "./a", "..", "a\\b", "a\0b",
     "a\nb", "a/.tmp-x"],
)  # fmt: skip
def test_names_that_lead_out_are_refused(store: LocalStore, name: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.get(name),
        lambda: store.view(name),
        lambda: store.put(name, b""),
        lambda: create(store, name, b""),
        lambda: store.info(name),
        lambda: store.delete([name]),
        lambda: store.offer(b"", "fine").put(name),
    ]
    if name:  # The empty name is the root, as a folder.
        calls += [lambda: list(store.list(name)), lambda: store.delete_tree(name)]
    for call in calls:
        with pytest.raises(InvalidRequestError):
            call()


def test_symbolic_links_are_refused_by_name(store: LocalStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"not yours")
    create(store, "f/a")
    root = tmp_path / "root"
    (root / "door").symlink_to(outside)
    (root / "f" / "window").symlink_to(outside / "secret")
    for call in (
        lambda: store.get("door/secret"),
        lambda: store.view("door/secret"),
        lambda: store.info("door/secret"),
        lambda: list(store.list("door")),
        lambda: list(store.folders("door")),
        lambda: store.put("door/new", b"x"),
        lambda: create(store, "door/new"),
        lambda: create(store, "door/deeper/new"),
        lambda: store.delete(["door/secret"]),
        lambda: store.settle("door"),
        lambda: store.delete_tree("door"),
        lambda: store.get("f/window"),
        lambda: store.view("f/window"),
        lambda: store.info("f/window"),
    ):
        with pytest.raises(StorageError, match="symbolic link") as caught:
            call()
        assert "door" in str(caught.value) or "window" in str(caught.value)
    assert isinstance(create(store, "f/window"), Conflict)
    store.put("f/window", b"mine")  # It takes the link's place; what it led to is not touched.
    assert store.get("f/window") == b"mine"
    assert (outside / "secret").read_bytes() == b"not yours"
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    create(LocalStore(str(tmp_path / "link")), "f/a")
    assert (tmp_path / "real" / "f" / "a").read_bytes() == b"data"


def test_what_is_no_file_reads_as_no_file(store: LocalStore, tmp_path: Path) -> None:
    create(store, "f/a")
    os.mkfifo(tmp_path / "root" / "pipe")
    assert store.get("f") is None
    assert store.info("f") is None
    assert store.get("pipe") is None, "and does not wait for somebody to write"
    assert store.view("f") is store.view("pipe") is store.view("f/none") is None
    assert store.get("f/a/below") is None
    with pytest.raises(StorageError, match="in the place of a folder"):
        create(store, "f/a/below")


@pytest.mark.parametrize("chunk", [1 << 30, 5])
def test_a_view_is_what_get_gives(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(local_files, "_CHUNK", chunk)
    for data in (b"", b"data", bytes(range(256)) * 300):
        store.put("f/a", data)
        assert store.view("f/a") == store.get("f/a") == data
        for start, end in ((0, 4), (0, 10**6), (2, None), (-3, None), (2, 2), (10**6, 10**7)):
            assert store.view("f/a", start, end) == store.get("f/a", start, end)


# -- folders that come and go


def test_a_folder_that_was_removed_and_made_again_is_noticed(
    store: LocalStore, tmp_path: Path
) -> None:
    other = LocalStore(str(tmp_path / "root"))
    offer = store.offer(b"early", "t/log/0")
    create(store, "t/log/1")
    assert store.get("t/log/1") == b"data"
    other.delete_tree("t")
    assert store.get("t/log/1") is None
    assert isinstance(offer.put("t/log/2"), Committed)
    create(other, "t/log/3", b"theirs")
    assert store.get("t/log/3") == b"theirs"
    assert other.get("t/log/2") == b"early"
    offer.close()
    os.rename(tmp_path / "root" / "t", tmp_path / "root" / "moved")
    assert store.get("t/log/3") is None
    assert isinstance(create(store, "t/log/3", b"new"), Committed)
    assert store.get("moved/log/3") == b"theirs"


def test_open_folders_are_bounded(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    for number in range(300):
        create(store, f"p={number}/a")
    assert len(os.listdir("/proc/self/fd")) - before < 80
    assert all(store.get(f"p={number}/a") == b"data" for number in range(300))
    store.close()
    assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_folders_that_are_open_when_the_program_ends_say_nothing(tmp_path: Path) -> None:
    """Python takes the names of a module away before it lets go of the last objects."""
    code = (
        "import os; from offsetlog.storage.local import files;"
        f"folder = files.Folder(os.open({str(tmp_path)!r}, os.O_RDONLY)); files.os = None;"
        "fd = folder.fd; del folder; os.open('/', os.O_RDONLY) == fd or print('still open')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""


def test_threads_share_a_store(store: LocalStore) -> None:
    won: list[int] = []

    def race() -> None:
        for number in range(60):
            if isinstance(create(store, f"p={number % 70}/{number}"), Committed):
                won.append(number)

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == list(range(60))


def test_a_forked_process_is_safe(store: LocalStore) -> None:
    create(store, "f/0", b"parent")
    offer = store.offer(b"shared", "f/1")
    pid = os.fork()
    if not pid:
        fine = store.get("f/0") == b"parent"
        fine &= isinstance(offer.put("f/1"), Committed)
        fine &= isinstance(create(store, "f/2", b"child"), Committed)
        fine &= len(list(store.list("f"))) == 3
        os._exit(0 if fine else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert isinstance(offer.put("f/1"), Conflict)
    assert isinstance(offer.put("f/3"), Committed)
    assert store.get("f/1") == store.get("f/3") == b"shared"
    assert store.get("f/2") == b"child"


# -- durability


def test_the_order_in_which_things_become_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes before the name, the name before the answer, new folders before the file."""
    done: list[str] = []

    def told(kind: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*about: Any, **more: Any) -> Any:
            what = os.readlink(f"/proc/self/fd/{about[0]}") if kind != "link" else str(about[1])
            done.append(f"{kind} {what.removeprefix(str(tmp_path))}")
            return plain(*about, **more)

        return call

    monkeypatch.setattr(local_files, "_sync_data", told("data", os.fdatasync))
    monkeypatch.setattr(local_module.os, "fsync", told("folder", os.fsync))
    monkeypatch.setattr(local_module.os, "link", told("link", os.link))
    store = LocalStore(str(tmp_path / "root"))
    create(store, "t/log/0")
    data = next(n for n, what in enumerate(done) if what.startswith("data"))
    assert {"folder ", "folder /root", "folder /root/t"} <= set(done[:data])
    assert done[data + 1 :] == ["link 0", "folder /root/t/log"]
    done.clear()
    create(store, "t/log/1")
    assert [what.split()[0] for what in done] == ["data", "link", "folder"], "the hot path"
    done.clear()
    store.put("t/log/cache", b"x", durable=False)
    assert done == []
    store.settle("t/log")
    assert done == ["folder /root/t/log"]


def test_a_folder_that_can_not_be_synced_leaves_the_fate_open(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(store, "f/a")
    offer = store.offer(b"x", "f/b")

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, "the disk is dying")

    monkeypatch.setattr(local_module.os, "fsync", broken)
    result = offer.put("f/b")
    assert isinstance(result, Unknown)
    assert "f/b" in result.error
    monkeypatch.undo()
    assert isinstance(offer.put("f/b"), Conflict), "it is there, and it is ours"


_WRITER = """
import sys
from offsetlog.storage.local.disk import LocalStore
from offsetlog.testing.racing import payload
store = LocalStore(sys.argv[1], unnamed_temporaries=sys.argv[3] == "unnamed")
number = int(sys.argv[2])
while True:
    name = f"log/{number:08d}"
    offer = store.offer(payload(1, number, 300_000), name)
    offer.put(name)
    offer.close()
    store.put("hint", payload(1, number, 300_000))
    print(number, flush=True)
    number += 1
"""


@pytest.mark.parametrize("kind", ["unnamed", "named"])
def test_kills_leave_whole_files_or_none(tmp_path: Path, kind: str) -> None:
    store = LocalStore(str(tmp_path))
    next_number, acknowledged = 0, []
    for kill in range(12):
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(tmp_path), str(next_number), kind],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert writer.stdout is not None
        for _ in range(3 + kill):
            acknowledged.append(int(writer.stdout.readline()))
        time.sleep(0.0007 * kill)
        writer.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in writer.communicate()[0].split("\n")[:-1]]
        next_number = len(list(store.list("log")))
    stored = sorted(store.list("log"))
    assert [one.name for one in stored] == [f"log/{n:08d}" for n in range(len(stored))]
    for number, one in enumerate(stored):
        assert parse(store.get(one.name) or b"") == (1, number)
    assert set(acknowledged) <= set(range(len(stored)))
    assert parse(store.get("hint") or b"") is not None
    left = [path for path in files(tmp_path) if ".tmp-" in path]
    assert kind == "named" or not [path for path in left if path.startswith("log/")]
    for folder in ("", "log"):
        store.sweep(folder, int((time.time() + 60) * 1000))
    assert not [path for path in files(tmp_path) if ".tmp-" in path]


def test_payloads_tell_a_torn_file() -> None:
    whole = payload(3, 7, 5000)
    assert parse(whole) == (3, 7)
    assert parse(whole[:-1]) is None
    assert parse(whole[:-1] + b"!") is None
    assert parse(b"") is None


def _is_mine(found: bytes | None) -> None:
    if found != b"mine":
        raise StorageError(f"{found!r} is not mine.")


@pytest.mark.parametrize("there", ["nothing", "an empty folder", "another root"])
@pytest.mark.parametrize("known", [False, True], ids=["new store", "used before"])
def test_a_store_that_keeps_to_a_root_creates_nothing_elsewhere(
    tmp_path: Path, there: str, known: bool
) -> None:
    root, away = tmp_path / "root", tmp_path / "away"
    LocalStore(str(root)).put("mark", b"mine")
    store = LocalStore(str(root))
    if known:
        store.put("f/before", b"x")
    store.keep_to("mark", _is_mine)
    if known:
        store.put("f/known", b"x")
    offer = store.offer(b"x", "f/late") if known else None
    root.rename(away)
    if there != "nothing":
        root.mkdir()
    if there == "another root":
        (root / "mark").write_bytes(b"yours")
        (root / "f").mkdir()
    before = sorted(tmp_path.rglob("*"))
    for name in ("a", "f/a", "g/h/a"):
        with pytest.raises(StorageError, match="is not mine"):
            store.put(name, b"x")
        with pytest.raises(StorageError, match="is not mine"):
            create(store, name)
        if offer is not None:
            with pytest.raises(StorageError, match="is not mine"):
                offer.put(name)
    assert sorted(tmp_path.rglob("*")) == before
    if there == "another root":
        (root / "f").rmdir()
        (root / "mark").unlink()
    if there != "nothing":
        root.rmdir()
    away.rename(root)
    store.put("f/a", b"x")
    if offer is not None:
        assert isinstance(offer.put("f/late"), Committed)
        offer.close()
    assert store.get("f/a") == b"x"
