"""The process that looks after a stream's topics: one at a time, now and then, and no longer than
the application lives."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from offsetlog.errors import InvalidRequestError
from pyspark_offsetlog.options.check import sink_options
from pyspark_offsetlog.options.spec import LogAddress
from pyspark_offsetlog.runtime import upkeep_process
from pyspark_offsetlog.runtime.upkeep_process import start_if_due
from tests.cli.shell import environment
from tests.spark_plugin.unit.sink_tools import ROWS

HOUR = 3_600_000


@pytest.fixture(autouse=True)
def own_temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setattr(upkeep_process, "_started", [])
    return folder


@pytest.fixture(autouse=True)
def orders(log: Any) -> None:
    log.create_topic("orders")
    fill(log)


def fill(log: Any) -> None:
    with log.producer(linger_ms=0) as producer:
        for _ in range(20):
            producer.send("orders", b"x").result()


def place_of(log: Any, **storage: Any) -> LogAddress:
    return LogAddress(log.url, tuple(storage.items()), False, None, log.root_id)


def segments(log: Any) -> int:
    return sum(
        len(list(log.store.list(f"orders/{folder}")))
        for folder in log.store.folders("orders")
        if folder[0] != "_"
    )


def ended() -> None:
    for process in upkeep_process._started:
        assert process.wait(30) == 0


def test_a_round_an_interval(log: Any) -> None:
    place = place_of(log)
    start_if_due(place, ("orders",), HOUR)
    ended()
    assert segments(log) == 1
    for _ in range(3):
        start_if_due(place, ("orders",), HOUR)
    assert upkeep_process._started == []
    fill(log)
    start_if_due(place, ("orders",), 0)
    ended()
    assert segments(log) == 2


def test_another_worker_of_spark_knows_when_the_last_round_was(
    log: Any, own_temp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note is a file, and another query's topics or another log have another."""
    start_if_due(place_of(log), ("orders",), HOUR)
    ended()
    code = (
        "from pyspark_offsetlog.runtime import upkeep_process as u\n"
        "from pyspark_offsetlog.options.spec import LogAddress\n"
        f"place = LogAddress({log.url!r}, (), False, None, {log.root_id!r})\n"
        f"u.start_if_due(place, ('orders',), {HOUR}); print(len(u._started))\n"
        f"u.start_if_due(place, ('orders', 'more'), {HOUR}); print(len(u._started))\n"
        "[p.wait() for p in u._started]"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env=environment(),
    )  # fmt: skip
    assert done.stdout.split() == ["0", "1"]
    assert "'more'" in done.stderr and len(done.stderr.splitlines()) == 1


def test_one_at_a_time(log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = "import time, sys; sys.stdin.read(); time.sleep(60)"
    real = subprocess.Popen

    def started(command: list[str], **about: Any) -> Any:
        return real([command[0], "-c", slow], **about)

    monkeypatch.setattr(upkeep_process.subprocess, "Popen", started)
    start_if_due(place_of(log), ("orders",), 0)
    [process] = upkeep_process._started
    try:
        start_if_due(place_of(log), ("orders",), 0)
        assert upkeep_process._started == [process]
    finally:
        process.kill()
        process.wait()
    start_if_due(place_of(log), ("orders",), 0)
    [another] = upkeep_process._started
    another.kill()
    another.wait()
    assert another is not process


def test_a_clock_that_was_set_back_does_not_put_it_off(log: Any, own_temp: Path) -> None:
    start_if_due(place_of(log), ("orders",), HOUR)
    ended()
    [note] = own_temp.rglob("*.upkeep")
    note.write_text(f"{log.env.now_ms() + 10 * HOUR:020d}")
    start_if_due(place_of(log), ("orders",), HOUR)
    assert len(upkeep_process._started) == 1
    ended()


def test_it_ends_with_the_process_that_started_its_starter(log: Any) -> None:
    """Spark's daemon is gone: so is the round, wherever it was."""
    parent = subprocess.Popen(["sleep", "60"])
    work = upkeep_process.Round(place_of(log), ("orders",), parent.pid)
    read, write = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", SLOW], stdin=subprocess.PIPE, env=environment(), pass_fds=(read,)
        )
        assert process.stdin is not None
        with process.stdin as pipe:
            pipe.write(upkeep_process.pickle.dumps(work))
        time.sleep(3)
        assert process.poll() is None
        parent.kill()
        parent.wait()
        assert process.wait(20) == 0
    finally:
        os.close(read)
        os.close(write)


SLOW = """
import time
from offsetlog.client.log import Log
Log.maintain = lambda self, topic: time.sleep(120)
from pyspark_offsetlog.runtime.upkeep_process import main
main()
"""


def test_secrets_are_no_arguments(log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[Any] = []
    real = subprocess.Popen

    def started(command: list[str], **about: Any) -> Any:
        commands.append((command, about["env"]))
        return real([command[0], "-c", "import sys; sys.stdin.read()"], **about)

    monkeypatch.setattr(upkeep_process.subprocess, "Popen", started)
    start_if_due(place_of(log, secret="s3cr3t-of-mine"), ("orders",), 0)
    ended()
    assert "s3cr3t-of-mine" not in repr(commands)


def test_what_goes_wrong_is_a_warning(
    log: Any, own_temp: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(upkeep_process, "_own_folder", lambda: own_temp / "gone")
    start_if_due(place_of(log), ("orders",), 0)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(own_temp))
    start_if_due(place_of(log), ("nothing",), 0)
    ended()
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2 and all(line.startswith("offsetlog: warning: ") for line in lines)
    assert "No such file" in lines[0] and "'nothing'" in lines[1]


def test_a_folder_that_another_user_made_first_ends_nothing(
    log: Any, own_temp: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whoever made ``offsetlog-UID`` in the temporary folder ended all upkeep of that user."""
    strangers = [own_temp / f"offsetlog-{os.getuid()}{end}" for end in ("", "-", "-0", "-zzz")]
    for folder in strangers:
        folder.mkdir()
        folder.chmod(0o777)
    (own_temp / f"offsetlog-{os.getuid()}-1").symlink_to(own_temp)
    for variable in ("XDG_RUNTIME_DIR", "HOME"):
        monkeypatch.setenv(variable, str(own_temp / "file" / "not"))
    (own_temp / "file").write_text("")
    for _ in range(2):
        start_if_due(place_of(log), ("orders",), HOUR)
        ended()
    assert capfd.readouterr().err == "" and len(upkeep_process._started) == 0
    assert segments(log) == 1, "one round, which the second look knew of"
    [note] = own_temp.rglob("*.upkeep")
    assert note.parent not in strangers and note.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("variable", ["XDG_RUNTIME_DIR", "HOME"])
def test_the_note_lies_where_the_user_alone_may_write(
    log: Any, own_temp: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setenv(variable, str(tmp_path / "mine"))
    (tmp_path / "mine").mkdir()
    start_if_due(place_of(log), ("orders",), HOUR)
    ended()
    [note] = (tmp_path / "mine").rglob("*.upkeep")
    assert note.parent.stat().st_mode & 0o777 == 0o700 and not list(own_temp.rglob("*"))


def test_modules_do_not_come_from_the_current_folder(
    log: Any, own_temp: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Spark's daemon has it first on its path, and it may be anybody's."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "secrets.py").write_text(f"open({str(here / 'ran')!r}, 'w')")
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(str(here))
    start_if_due(place_of(log), ("orders",), HOUR)
    ended()
    assert segments(log) == 1 and not (here / "ran").exists()


def test_the_option() -> None:
    from pyspark_offsetlog.sink.writers import BatchWriter

    options = {"path": "/log", "topic": "t"}
    assert sink_options(options).maintain_ms is None
    assert sink_options({**options, "maintainInterval": "10m"}).maintain_ms == 600_000
    for text in ("0s", "10ms", "often", "-1"):
        with pytest.raises(InvalidRequestError, match="maintainInterval"):
            sink_options({**options, "maintainInterval": text})
    with pytest.raises(InvalidRequestError, match="memory"):
        sink_options({"path": "memory://x", "topic": "t", "maintainInterval": "10m"})
    with pytest.raises(InvalidRequestError, match="a batch, which ends"):
        BatchWriter(sink_options({**options, "maintainInterval": "10m"}), ROWS)
