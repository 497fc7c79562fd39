"""Histories as files, and what is told of them: the recorder, the report, the command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from offsetlog.errors import CorruptLogError, InvalidRequestError, StorageError
from offsetlog.testing import history
from offsetlog.testing.history.faults import MOST
from offsetlog.values import Record
from tests.testing.cases import writes
from tests.testing.histories import Told

# --- what is written down ------------------------------------------------------------------


def test_a_recorder_writes_what_check_reads(tmp_path):
    with history.Recorder(tmp_path / "p.jsonl") as rec:
        with rec.send({("t", 0): ["a", "b"]}) as sending:
            sending.ok({("t", 0): [0, 1]})
        with pytest.raises(StorageError), rec.send({("t", 0): ["c"]}):
            raise StorageError("no answer", may_have_landed=True)
        with pytest.raises(StorageError), rec.send({("t", 0): ["d"]}):
            raise StorageError("refused")
        with rec.commit("g", {("t", 0): 2}) as committing:
            committing.ok()
        with rec.committed("g") as asking:
            asking.ok({("t", 0): 2})
        rec.assign([("t", 0)], "g")
        rec.lost([("t", 0)], "g")
    with history.Recorder(tmp_path / "r.jsonl", "reader") as rec:
        rec.seek({("t", 0): 0})
        with rec.poll() as polling:
            polling.got([Record("t", 0, i, None, v, [], 0) for i, v in enumerate([b"a", b"b"])])
        with rec.ends() as asking:
            asking.ok({("t", 0): 2})
        with rec.trim({("t", 0): 1}) as trimming:
            trimming.ok()
        with rec.reset("g", {("t", 0): None}) as resetting:
            resetting.ok()
    steps = [(e.process, e.step, e.kind) for e in history.read_history(tmp_path)]
    assert steps[:6] == [
        ("p", "do", "send"), ("p", "ok", ""), ("p", "do", "send"), ("p", "unknown", ""),
        ("p", "do", "send"), ("p", "fail", ""),
    ]  # fmt: skip
    assert history.check(tmp_path) == []
    with pytest.raises(InvalidRequestError, match="file of its own"):
        history.Recorder(tmp_path / "p.jsonl")


def test_what_a_killed_process_began_has_an_unknown_outcome(tmp_path):
    program = (
        "import sys, time; from offsetlog.testing.history import Recorder\n"
        "rec = Recorder(sys.argv[1]); rec.send({('t', 0): ['a']}); print('x', flush=True)\n"
        "time.sleep(60)"
    )
    path = tmp_path / "killed.jsonl"
    command = [sys.executable, "-c", program, str(path)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ))
    assert child.stdout.readline() == b"x\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    with path.open("ab") as file:
        file.write(b'{"n":2,"at":99,"do":"se')  # Cut off while it was written.
    reader = Told()
    reader.poll("r", {"t/0": {0: "a"}})
    events = [*history.read_history(path), *reader.events]
    assert history.check(events, real_time=False) == []


@pytest.mark.parametrize(
    "line",
    [
        b"{", b"[]", b"3", b'{"n":1}', b'{"n":true,"at":1,"ok":null}', b'{"n":1,"at":1,"do":"x"}',
        b'{"n":1,"at":1,"do":"fly","with":{}}', b"[" * 100_000, b"\xff",
    ],
)  # fmt: skip
def test_a_line_that_is_something_else_is_named(tmp_path, line):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"history":1,"process":"p"}\n' + line + b"\n")
    with pytest.raises(CorruptLogError, match=r"Line 2 of .*x\.jsonl"):
        list(history.read_history(path))


def test_what_cannot_be_judged_is_named(tmp_path):
    again = Told()
    again.send("p", {"t/0": {"a": 0}})
    again.send("p", {"t/0": {"a": 1}})
    with pytest.raises(CorruptLogError, match="sent before"):
        history.check(again.events)
    short = Told()
    n = short.begin("p", "send", records={"t/0": ["a", "b"]})
    short.end("p", n, "ok", {"t/0": [0]})
    with pytest.raises(CorruptLogError, match="Operation 1 of p"):
        history.check(short.events)
    with pytest.raises(InvalidRequestError, match="no history"):
        history.check(tmp_path)
    for name in "ab":
        history.Recorder(tmp_path / f"{name}.jsonl", "same").close()
    line = '{"n":1,"at":1,"did":"seek","with":{"offsets":{}}}\n'
    for name in "ab":
        with (tmp_path / f"{name}.jsonl").open("a") as file:
            file.write(line)
    (tmp_path / "ab.jsonl").write_text('{"history":1,"process":"other"}\n' + line)
    with pytest.raises(CorruptLogError, match="called 'same'"):
        history.check(tmp_path)


# --- what is told --------------------------------------------------------------------------


def test_the_report_tells_a_story(tmp_path, capsys):
    told = writes.CASES["lost_below_what_was_read"][2]
    faults = history.check(told.events)
    text = history.tell(told.events, faults)
    lines = text.splitlines()
    assert lines[0].split() == ["1", "lost", "write"]
    assert "'a' was acknowledged at t/0 offset 0; nobody ever read it" in text
    assert 'p begins send t/0=["a"]' in text
    assert history.tell(told.events, []) == "No fault was found."


def test_the_command(tmp_path):
    for name, value in (("good", "a"), ("bad", "ghost")):
        folder = tmp_path / name
        folder.mkdir()
        with history.Recorder(folder / "p.jsonl") as rec:
            with rec.send({("t", 0): ["a"]}) as sending:
                sending.ok({("t", 0): [0]})
            with rec.poll() as polling:
                polling.got([Record("t", 0, 0, None, value.encode(), [], 0)])
        command = [sys.executable, "-m", "offsetlog.testing.history", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == (name == "bad"), done.stderr
        assert ("aborted read: 'ghost'" in done.stdout) == (name == "bad")


def test_one_broken_rule_does_not_fill_the_report():
    told = Told()
    for i in range(MOST + 50):
        told.poll(f"r{i}", {"t/0": {i: f"ghost{i}"}})
    faults = history.check(told.events)
    assert len(faults) == MOST + 1
    assert "50 more" in faults[-1].says
