"""Real processes, pipes and signals."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest

from offsetlog.cli import consume
from tests.cli.shell import PROGRAM, environment, offsetlog
from tests.waiting import until

LIGHT = """
import sys
from offsetlog.cli.main import main
main({!r})
print([m for m in {} if m in sys.modules], file=sys.stderr)
"""
HEAVY = ["pyarrow", "rich", "fsspec", "numpy", "offsetlog.client.log"]


def start(*words, **about):
    about.setdefault("stdout", subprocess.PIPE)
    about.setdefault("stderr", subprocess.PIPE)
    return subprocess.Popen([*PROGRAM, *words], env=environment(), **about)


@pytest.mark.parametrize("words", [["--help"], ["consume", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(words):
    done = subprocess.run(
        [sys.executable, "-c", LIGHT.format(words, HEAVY)],
        capture_output=True, text=True, env=environment(), check=True,
    )  # fmt: skip
    assert done.stderr == "[]\n"


def test_help_is_there_at_once():
    """By processor time, which other work on the machine does not lengthen."""
    spent = []
    for _ in range(3):
        before = os.times()
        subprocess.run([*PROGRAM, "--help"], capture_output=True, env=environment(), check=True)
        after = os.times()
        spent.append(
            after.children_user
            - before.children_user
            + after.children_system
            - before.children_system
        )
    assert min(spent) < 0.3


def test_a_hundred_thousand_lines_through_pipes(orders):
    """produce --acks | consume: each line at the place that its ack said."""
    count = 100_000
    lines = "".join(f"k{n % 97}:line {n}\n" for n in range(count))
    with start("produce", "orders", "--key-separator", ":", "--acks", stdin=subprocess.PIPE) as one:
        acks, error = one.communicate(lines.encode(), 60)
    assert (one.returncode, error) == (0, b"")
    places = [tuple(map(int, line.split("\t"))) for line in acks.decode().splitlines()]
    assert len(places) == len(set(places)) == count
    with start("consume", "orders", "--json") as other:
        out, error = other.communicate(timeout=60)
    assert (other.returncode, error) == (0, b"")
    stored = {
        (record["partition"], record["offset"]): record["value"]
        for record in map(json.loads, out.splitlines())
    }
    assert all(stored[place] == f"line {n}" for n, place in enumerate(places))
    assert len(stored) == count + 6


def test_from_one_topic_to_another(orders):
    offsetlog("topics", "create", "copy")
    first = start("consume", "orders")
    second = start("produce", "copy", stdin=first.stdout)
    first.stdout.close()
    for process in (first, second):
        with process:
            assert process.wait(30) == 0
            assert process.stderr.read() == b""
    assert offsetlog("consume", "copy").out == offsetlog("consume", "orders").out


def test_follow_prints_what_comes_and_ends_quietly_at_ctrl_c(orders):
    with start("consume", "orders", "--follow", "--from", "latest") as tail:
        # It is at the end once it has printed the first record that was sent behind its start.
        until(
            lambda: (
                _said_something(tail) or offsetlog("produce", "orders", stdin=b"hello\n") is None
            )
        )
        tail.send_signal(signal.SIGINT)
        out, error = tail.communicate(timeout=20)
    assert tail.returncode == 130 and error == b""
    assert set(out.splitlines()) <= {b"hello"}


def _said_something(process):
    import select

    ready, _, _ = select.select([process.stdout], [], [], 0.1)
    return bool(ready)


def test_follow_notices_a_new_partition(orders):
    with start("consume", "orders", "--follow", "--max", "7") as tail:
        offsetlog("topics", "alter", "orders", "--partitions", "4")
        offsetlog("produce", "orders", "--partition", "3", stdin=b"in the new one\n")
        out, error = tail.communicate(timeout=30)
    assert (tail.returncode, error) == (0, b"")
    assert sorted(out.splitlines())[0] == b"in the new one" and len(out.splitlines()) == 7


@pytest.mark.parametrize("words", [["consume", "orders"], ["consume", "orders", "--follow"]])
def test_a_reader_that_leaves_ends_it_quietly(words, orders):
    offsetlog("produce", "orders", stdin=b"x" * 100 + b"\n" + b"line\n" * 50_000)
    with start(*words) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(20) == 0
        assert process.stderr.read() == b""


def test_follow_ends_when_its_reader_left_though_nothing_comes(orders):
    with start("consume", "orders", "--follow") as process:
        for _ in range(6):
            assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(20) == 0
        assert process.stderr.read() == b""


def test_acks_without_a_reader_are_no_success(orders):
    with start("produce", "orders", "--acks", stdin=subprocess.PIPE, bufsize=0) as process:
        process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(b"line\n" * 200_000)
        process.stdin.close()
        assert process.wait(30) == 141
        assert process.stderr.read() == b""


def test_ctrl_c_writes_what_was_read_and_prints_its_acks(orders):
    with start("produce", "orders", "--partition", "0", "--acks", stdin=subprocess.PIPE) as process:
        process.stdin.write(b"one\ntwo\nthree")
        process.stdin.flush()
        first = process.stdout.readline() + process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, error = process.communicate(timeout=20)
    assert process.returncode == 130 and error == b""
    assert first + rest == b"0\t2\n0\t3\n"
    assert offsetlog("consume", "orders", "--partition", "0").lines[2:] == ["one", "two"]


@pytest.mark.parametrize("after", [1, 500, 3000])
def test_a_kill_in_the_middle_loses_nothing_that_was_acknowledged(after, orders):
    """SIGKILL while acks are printed: every complete line of them tells the truth."""
    endless = ["seq", "-f", "line %.0f", "0", "1000000000"]
    with (
        subprocess.Popen(endless, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as feed,
        start("produce", "orders", "--acks", stdin=feed.stdout) as process,
    ):
        feed.stdout.close()
        acks = [process.stdout.readline() for _ in range(after)]
        process.kill()
        acks += process.stdout.read().splitlines(keepends=True)
    places = [tuple(map(int, line.split())) for line in acks if line.endswith(b"\n")]
    assert len(places) >= after
    stored = {
        (record["partition"], record["offset"]): record["value"]
        for record in map(json.loads, offsetlog("consume", "orders", "--json").lines)
    }
    assert [stored[place] for place in places] == [f"line {n}" for n in range(len(places))]
    values = [value for value in stored.values() if value.startswith("line ")]
    assert sorted(values, key=lambda v: int(v[5:])) == [f"line {n}" for n in range(len(values))]
    assert offsetlog("verify").status == 0


def test_sigterm_ends_a_group_member_as_ctrl_c_does(orders):
    with start("consume", "orders", "--group", "billing", "--follow") as member:
        assert member.stdout.readline()
        member.send_signal(signal.SIGTERM)
        _, error = member.communicate(timeout=20)
    assert (member.returncode, error) == (143, b"")
    described = offsetlog("--json", "groups", "describe", "billing", "--state")
    assert b'"Empty"' in described.out, described.out


def test_a_group_is_read_again_after_its_only_member_was_killed(orders, monkeypatch):
    """It read nothing, run after run: each gave up before the dead member could be expelled."""
    monkeypatch.setattr(consume, "ASSIGNMENT_SECONDS", 2.0)
    monkeypatch.setattr(consume, "WAIT_NOTICE_SECONDS", 0.5)
    words = ("consume", "orders", "--group", "billing", "--session-timeout", "3s")
    with start(*words, "--follow") as member:
        assert member.stdout.readline()
        member.kill()
        member.communicate(timeout=20)
    again = offsetlog("consume", "orders", "--group", "billing")
    assert again.status == 0 and again.out.splitlines(), again


INTERRUPTED_IMPORT = """
import sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
from offsetlog.__main__ import main
sys.argv = ["offsetlog", "consume", "orders"]
sys.exit(main())
"""


@pytest.mark.parametrize(
    "module", ["offsetlog.cli", "click", "offsetlog.arguments", "offsetlog.client.log", "pyarrow"]
)
def test_ctrl_c_while_it_is_importing_is_silent(orders, module):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT.format(module)],
        capture_output=True, text=True, env=environment(), check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_nothing_is_imported_before_ctrl_c_is_looked_for():
    program = (
        "import sys, typing, __future__; before = set(sys.modules); import offsetlog.__main__;"
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment(),
        check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "['offsetlog', 'offsetlog.__main__']"
