"""One door to files: nothing else in the product opens a path, and what is behind the door asks
what is at a name before it reads it, on every filesystem."""

from __future__ import annotations

import ast
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from offsetlog.errors import OffsetLogError, StorageError
from offsetlog.storage import Store, open_store
from offsetlog.storage.fsspec import LookThenWriteStore
from tests.servers.process import ROOT

PRODUCT = [*(ROOT / "offsetlog").rglob("*.py"), *(ROOT / "spark_plugin").rglob("*.py")]
DOOR = {"offsetlog/storage/local/disk.py", "offsetlog/storage/local/files.py"}
"""What opens paths below a root. Other filesystems are opened by their clients."""
OWN_FILES = {
    "offsetlog/cli/config.py": "the settings file",
    "offsetlog/cli/output.py": "/dev/null",
    "offsetlog/cli/produce.py": "the file of records that a user names",
    "offsetlog/client/group.py": "the file of offsets that a user names",
    "offsetlog/client/notebook_html.py": "a file that a user wants written",
    "offsetlog/client/running_pages.py": "notes in a folder of the user's own",
    "offsetlog/demo/billing.py": "the demo's own folder",
    "offsetlog/demo/program.py": "the demo's own folder",
    "offsetlog/demo/senders.py": "the demo's own folder",
    "offsetlog/demo/spark_queries.py": "the demo's own folder",
    "offsetlog/demo/stage.py": "the demo's own folder",
    "offsetlog/demo/story.py": "the demo's own folder",
    "offsetlog/page/responses.py": "files of the package",
    "offsetlog/testing/history/events.py": "a history that a user names",
    "offsetlog/testing/history/recorder.py": "a history that a user names",
    "offsetlog/spark_jar.py": "sources and the jar that is built of them",
    "spark_plugin/pyspark_offsetlog/runtime/planner_launch.py": "a file of the installed PySpark",
    "spark_plugin/pyspark_offsetlog/runtime/upkeep_process.py": "a note in the user's own folder",
}
PARQUET = {"offsetlog/format/parquet.py"}
"""What decodes Parquet."""
OPENERS = {"os.open", "io.open", "os.fdopen", "open", "codecs.open", "mmap.mmap"}
METHODS = {"read_text", "read_bytes", "write_text", "write_bytes"}
DECODERS = {"ParquetFile", "read_table", "read_metadata", "read_schema", "ParquetDataset"}


def parsed(text: str) -> ast.Module:
    """Python 3.11 counts the depth of all parsers of a process together, and gives up where another
    one disturbs it: a thread of its own and another try are not disturbed."""
    for _ in range(20):
        with suppress(SystemError), ThreadPoolExecutor(1) as thread:
            return thread.submit(ast.parse, text).result()
        time.sleep(0.05)
    return ast.parse(text)


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(parsed(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def opens_a_path(name: str, call: ast.Call) -> bool:
    last = name.rpartition(".")[2]
    if name == "read_text":  # The function of client/group.py.
        return False
    modes = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    by_mode = last == "open" and "." in name and any(set(mode) <= set("rwxabt+") for mode in modes)
    anonymous = name == "mmap.mmap" and ast.unparse(call.args[0]) == "-1"
    return (name in OPENERS and not anonymous) or last in METHODS or by_mode


def found(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_nothing_but_the_door_opens_a_path():
    opened = {found(path) for path in PRODUCT for call in calls(path) if opens_a_path(*call)}
    # Through a client that has the file of a server open.
    opened -= {"offsetlog/storage/shared/sftp.py"}
    opened -= {"offsetlog/cli/base.py"}  # click's formatter has a method of that name.
    assert opened - DOOR == set(OWN_FILES), "a new one is to go through a Store"


def test_nothing_but_one_module_decodes_parquet():
    decode = {
        found(path)
        for path in PRODUCT
        for name, _ in calls(path)
        if name.rpartition(".")[2] in DECODERS and name.split(".")[0] in ("pq", "pyarrow", "pa")
    }
    assert decode == PARQUET
    imports = {
        found(path)
        for path in PRODUCT
        for node in ast.walk(parsed(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        and any("deltalake" in name.name for name in node.names)
    }
    assert imports <= {"offsetlog/demo/spark_queries.py"}, "no library gets a table's path"


def test_no_read_is_without_an_end():
    """Each get below the root says how much at the most. The root's own probe has a file of its
    own, and so have the tests that users run."""
    endless = [
        f"{found(path)}:{call.lineno}"
        for path in PRODUCT
        for name, call in calls(path)
        if name.endswith(("store.get", "store.view")) and len(call.args) < 3
        if not found(path).startswith(("offsetlog/testing/", "offsetlog/storage/probe.py"))
    ]
    assert endless == []


# --- what is at a name ---------------------------------------------------------------------


@pytest.fixture(params=["disk", "fsspec", "sftp"])
def place(request, tmp_path) -> Iterator[tuple[Store, Path]]:
    folder = tmp_path / "root"
    folder.mkdir()
    if request.param == "disk":
        store = open_store(str(folder))
    elif request.param == "fsspec":
        store = LookThenWriteStore("file", str(folder), f"file://{folder}", {}, "a test")
    else:
        url, options = request.getfixturevalue("sftp")
        store = open_store(f"sftp://{url.split('/')[2]}{folder}", **options)
    yield store, folder
    store.close()


def test_links_are_followed_nowhere(place, tmp_path):
    store, folder = place
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (folder / "inside").mkdir()
    (folder / "folder").symlink_to(outside)
    (folder / "inside" / "file").symlink_to(outside / "secret")
    (folder / "dangling").symlink_to(folder / "nowhere")
    for name in ("folder/secret", "inside/file", "dangling"):
        for ask in (store.get, store.info):
            with pytest.raises(StorageError, match="symbolic link"):
                ask(name)
    for change in (
        lambda: store.put("folder/secret", b"x"),
        lambda: store.offer(b"x", "folder/new").put("folder/new"),
        lambda: store.delete(["folder/secret"]),
        lambda: store.delete_tree("folder"),
        lambda: list(store.list("folder")),
    ):
        with pytest.raises(StorageError, match="symbolic link"):
            change()
    assert list(store.folders("")) == ["inside"] and list(store.list("inside")) == []
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_text() == "secret"


@pytest.mark.parametrize("ask", ["get", "info"])
def test_a_file_that_comes_between_two_looks_is_no_link(tmp_path, monkeypatch, ask):
    store = LookThenWriteStore("file", str(tmp_path), f"file://{tmp_path}", {}, "a test")
    look = store.fs.lexists

    def as_it_comes(path: str, **options: object) -> bool:
        (tmp_path / "name").write_bytes(b"whole")
        return bool(look(path, **options))

    monkeypatch.setattr(store.fs, "lexists", as_it_comes)
    found = getattr(store, ask)("name")
    assert found == b"whole" or found.size == 5
    store.close()


@pytest.mark.parametrize("kind", ["pipe", "socket", "folder"])
def test_what_is_no_file_is_not_opened(place, kind):
    store, folder = place
    path = folder / "name"
    if kind == "folder":
        path.mkdir()
    else:
        os.mknod(path, 0o600 | (0o10000 if kind == "pipe" else 0o140000))
    answers: list[object] = []

    def ask() -> None:
        for look in (lambda: store.get("name", 0, 10), lambda: store.info("name")):
            try:
                answers.append(look())
            except OffsetLogError:
                answers.append(None)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(20)
    assert answers == [None, None]
    assert list(store.list("")) == []


# --- a web server --------------------------------------------------------------------------


class Careless(BaseHTTPRequestHandler):
    """Passes over ranges, and has a page without an end."""

    sent = 0

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            for number in range(1 << 16):
                self.wfile.write(number.to_bytes(4, "big") * (1 << 14))
                Careless.sent += 1 << 16
        except OSError:
            return

    def log_message(self, *_: object) -> None:
        return


def test_of_a_web_server_that_passes_over_the_range_no_more_is_taken():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Careless)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        store = open_store(f"http://127.0.0.1:{server.server_port}/log")
        assert store.get("page", 0, 65_536) == bytes(65_536)
        assert store.get("page", 65_534, 65_540) == b"\0\0\0\0\0\1"
        assert store.get("page", 65_536 * 300, 65_536 * 300 + 8) == (300).to_bytes(4, "big") * 2
        store.close()
    finally:
        server.shutdown()
        server.server_close()
    assert Careless.sent < 256 << 20, "the page has 4 GiB"
