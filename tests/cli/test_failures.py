"""What goes wrong is one line that says so, and a status; never a traceback."""

from __future__ import annotations

import errno
import os
import resource
import subprocess

import pytest

import offsetlog as library
from offsetlog.values import did_you_mean
from tests.cli.shell import PROGRAM, environment, offsetlog


def one_line(result, status):
    """The message, checked for its shape."""
    assert result.status == status, result.err
    assert result.err.startswith("offsetlog: ") and result.err.endswith("\n")
    assert result.err.count("\n") == 1 and "Traceback" not in result.err
    return result.err.removeprefix("offsetlog: ").rstrip()


def test_a_record_that_is_too_large_is_named_by_its_line(orders):
    offsetlog("topics", "alter", "orders", "--config", "max.message.bytes=100")
    lines = b"small\n" + b"x" * 101 + b"\nafter\n"
    result = offsetlog("produce", "orders", "--partition", "0", "--acks", stdin=lines)
    said = one_line(result, 2)
    assert said.startswith("Line 2: ") and "101 bytes" in said and "max.message.bytes" in said
    assert said.endswith("1 lines before it were written.")
    assert result.lines == ["0\t2"]
    assert offsetlog("offsets", "orders").lines[0] == "orders:0:3"


def test_a_line_without_an_end_does_not_fill_the_memory(orders):
    offsetlog("topics", "alter", "orders", "--config", "max.message.bytes=1000")
    with subprocess.Popen(
        [*PROGRAM, "produce", "orders"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
        env=environment(),
    ) as process:  # fmt: skip
        sent = 0
        with pytest.raises(BrokenPipeError):
            while sent < 50_000_000:
                process.stdin.write(b"x" * 65_536)
                sent += 65_536
        error = process.stderr.read().decode()
        assert process.wait(20) == 2 and "Line 1: The line is longer than" in error
        assert sent < 2_000_000


def test_verify_names_a_truncated_entry(orders):
    entry = next((orders / "log" / "orders" / "_log").rglob("*1.parquet"))
    entry.write_bytes(entry.read_bytes()[:-10])
    result = offsetlog("verify")
    assert "1 fault" in one_line(result, 1)
    assert entry.name in result.text and result.lines[2].split()[-2:] == ["1", "sound"]
    assert entry.name in one_line(offsetlog("consume", "orders"), 1)


def test_verify_names_a_file_that_is_gone(place):
    with library.open(str(place / "log")) as log:
        log.create_topic("t", config={"max.message.bytes": 1_000_000})
        with log.producer() as producer:
            producer.send("t", os.urandom(400_000))
    [segment] = (place / "log" / "t").glob("partition=0/*.parquet")
    segment.unlink()
    result = offsetlog("verify", "t")
    one_line(result, 1)
    assert segment.name in result.text and "missing" in result.text
    assert segment.name in one_line(offsetlog("consume", "t"), 1)


def test_a_full_disk_fails_the_lines_and_leaves_the_log_sound(orders):
    """A limit on file sizes stands for the disk: the kernel refuses the write."""

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    lines = b"fits\n" + b"".join(os.urandom(500).hex().encode() + b"\n" for _ in range(2000))
    done = subprocess.run(
        [*PROGRAM, "produce", "orders", "--partition", "0", "--acks"],
        input=lines, capture_output=True, env=environment(), preexec_fn=limit, timeout=60,
        check=False,
    )  # fmt: skip
    error = done.stderr.decode()
    assert done.returncode == 1 and error.count("\n") == 1 and "Line " in error
    acked = done.stdout.decode().splitlines()
    assert f"Line {len(acked) + 1}: " in error and f" {len(acked)} lines before it" in error
    assert len(acked) < 2001
    stored = offsetlog("consume", "orders", "--partition", "0").out.split(b"\n")[2:-1]
    assert stored[: len(acked)] == lines.split(b"\n")[: len(acked)]
    assert offsetlog("verify").status == 0


def test_a_read_only_filesystem(orders, monkeypatch):
    """Every way to create a file answers as the kernel does on one."""
    real_open = os.open

    def refuse(*arguments, **about):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def read_only(path, flags, *rest, **about):
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            refuse()
        return real_open(path, flags, *rest, **about)

    monkeypatch.setattr(os, "open", read_only)
    monkeypatch.setattr(os, "mkdir", refuse)
    monkeypatch.setattr(os, "link", refuse)
    for words in (["topics", "create", "more"], ["maintain"]):
        assert "read-only filesystem" in one_line(offsetlog(*words), 1)
    deleted = offsetlog("topics", "delete", "orders")
    what, why = deleted.err.splitlines()
    assert deleted.status == 1 and what.startswith("6 records ")
    assert why.startswith("offsetlog: ") and "read-only filesystem" in why
    said = one_line(offsetlog("produce", "orders", stdin=b"a\n"), 1)
    assert said.startswith("Line 1: ") and "read-only filesystem" in said
    assert len(offsetlog("consume", "orders").lines) == 6
    assert offsetlog("verify").status == 0


def test_storage_options_are_not_shown(place):
    secret = "s3cr3t-value"
    for words in (
        ["--storage", secret, "topics", "list"],
        ["--storage", f"key={secret}", "topics", "list"],
        ["--root", f"ftp://user:{secret}@127.0.0.1:1/log", "topics", "list"],
    ):
        result = offsetlog(*words)
        assert result.status and secret not in result.err + result.text


def test_debug_shows_where_and_still_ends_in_the_line(place):
    result = offsetlog("topics", "list", "--debug")
    assert result.status == 2
    lines = result.err.splitlines()
    assert lines[0].startswith("Traceback") and lines[-1].startswith("offsetlog: There is no log")


def test_an_unexpected_error_is_one_line_too(orders, monkeypatch):
    def broken(self):
        raise ZeroDivisionError("first\nsecond")

    monkeypatch.setattr(library.client.log.Log, "topics", broken)
    said = one_line(offsetlog("topics", "list"), 1)
    assert "ZeroDivisionError: first second" in said and "--debug" in said


def test_a_warning_is_one_line():
    done = subprocess.run(
        [*PROGRAM[:1], "-c", WARNING], capture_output=True, text=True, env=environment(), check=True
    )
    assert done.stderr.splitlines() == ["offsetlog: warning: ours"]


WARNING = """
import warnings
from offsetlog.cli.failures import install_warnings
from offsetlog.cli.session import CliSession
from offsetlog.errors import OffsetLogWarning
install_warnings(CliSession())
warnings.warn_explicit("ours", OffsetLogWarning, "/x/offsetlog/client/consumer.py", 1)
warnings.warn_explicit("of a library", UserWarning, "/x/aiohttp/client.py", 1)
warnings.warn_explicit("of a library", DeprecationWarning, "/x/s3fs/core.py", 1)
"""


def test_did_you_mean():
    assert did_you_mean("topik", ["topics", "verify"]) == "Did you mean 'topics'?"
    assert did_you_mean("zzz", ["verify", "topics"]) == "Known: topics, verify."
