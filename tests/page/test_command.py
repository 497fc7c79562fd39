"""``offsetlog page`` as a process: what it prints, how it ends, and its wrong options."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import offsetlog
from tests.cli.shell import PROGRAM, environment
from tests.cli.shell import offsetlog as run
from tests.page.conftest import fill


@pytest.fixture
def root(root: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OFFSETLOG_ROOT", str(root))
    with offsetlog.open(str(root)) as log:
        fill(log)
    return str(root)


@contextmanager
def started(root: str, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and the first line that it prints."""
    command = [*PROGRAM, "--root", root, "page", "--port", "0", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline()
        finally:
            process.kill()


def fetched(url: str, **headers: str) -> object:
    with urlopen(Request(url, headers=headers), timeout=10) as answer:
        return json.load(answer)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_serves_until_it_is_ended(root, number, status) -> None:
    with started(root) as (process, line):
        url = line.split()[-1]
        assert url.startswith("http://127.0.0.1:") and "token" not in line
        assert [topic["name"] for topic in fetched(f"{url}api/topics")] == ["hostile", "orders"]
        began = time.monotonic()
        process.send_signal(number)
        assert process.wait(20) == status and time.monotonic() - began < 10
        assert process.stdout.read() == ""
        assert process.stderr.read() == "Ctrl-C ends it.\n"


def test_its_token_is_in_the_address_alone(root) -> None:
    with started(root, "--allow-changes", "--base-path", "/orders") as (process, line):
        url, token = line.split()[-1].split("?token=")
        assert url.endswith("/orders/")
        state = fetched(f"{url}api/state", Authorization=f"Bearer {token}")
        assert state["has_token"] and state["allow_changes"]
        for wrong in (f"{url}?token=no", f"{url}api/nothing", f"{url}api/topics?x={token}"):
            with pytest.raises(HTTPError) as error:
                urlopen(wrong, timeout=10)
            with error.value:
                assert error.value.code in (400, 401, 404)
        process.send_signal(signal.SIGINT)
        process.wait(20)
        assert token not in process.stdout.read() + process.stderr.read()


def test_its_address_as_json(root) -> None:
    with started(root, "--json", "--allow-changes") as (process, line):
        document = line
        while "}" not in line:
            line = process.stdout.readline()
            document += line
        said = json.loads(document)
        assert said["sign_in_url"].startswith(f"{said['url']}?token=")
        assert fetched(f"{said['url']}api/state")["root_id"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--port", "99999"], "They end at 65535."),
        (["--port", "-1"], "--port"),
        (["--base-path", "/a b"], "is not a base path"),
        (["--allowed-host", "http://x"], "is not the name of a host"),
        (["--nothing"], "No such option"),
    ],
)
def test_wrong_options(root, words, text) -> None:
    result = run("page", *words)
    assert result.status == 2 and text in result.err and result.err.count("\n") == 1


def test_an_address_that_is_not_here(root) -> None:
    result = run("page", "--host", "203.0.113.7", "--port", "0")
    assert result.status == 1 and "can't listen on 203.0.113.7" in result.err


def test_a_log_that_is_not_there(tmp_path) -> None:
    result = run("--root", str(tmp_path / "nothing"), "page")
    assert result.status == 2 and "There is no log" in result.err


def test_without_its_extra(root, monkeypatch) -> None:
    for name in [name for name in sys.modules if name.startswith("offsetlog.page")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = run("page")
    assert result.status == 2
    assert "needs uvicorn, which is not installed" in result.err and "pip install" in result.err
