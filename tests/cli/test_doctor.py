"""``doctor`` and ``demo``: they tell the truth, and clean up."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess

import pytest

from offsetlog.cli import demo_story, doctor
from offsetlog.cli.demo_producer import BATCH
from tests.cli.shell import PROGRAM, environment, offsetlog

QUICK = ("--processes", "2", "--rounds", "6", "--seconds", "5")


def test_a_local_disk_is_fit_before_any_topic(place):
    result = offsetlog("doctor", *QUICK)
    assert (result.status, result.err) == (0, "")
    assert result.lines[-1].startswith(f"Fit for writing: file://{place}/log (")
    for word in ("MACHINE", "pyarrow", "java", "P50 MS", "race", "Appends a second"):
        assert word in result.text
    assert list((place / "log").iterdir()) == []


def test_it_leaves_a_log_as_it_is(orders):
    before = sorted((orders / "log").rglob("*"))
    told = json.loads(offsetlog("doctor", *QUICK, "--json").out)
    assert told["fit"] is True and told["filesystem"]["passed"] is True
    assert {fact["what"] for fact in told["machine"]} >= {"python", "fsspec", "java", "pyspark"}
    assert sorted((orders / "log").rglob("*")) == before


def test_what_cannot_decide_a_race_is_not_fit(place):
    result = offsetlog("--root", f"simplecache::file://{place}/log", "doctor", *QUICK)
    assert result.status == 1
    assert result.lines[-1].startswith("NOT fit for writing: ")
    assert result.err.startswith("offsetlog: this filesystem is not fit") and "S3" in result.err


@pytest.mark.parametrize(("raced", "status"), [(0, 1), (4, 0)])
def test_what_was_not_raced_for_is_not_called_fit(raced, status, place, monkeypatch):
    """A suite that ran out of time has no failed check, and yet has shown nothing."""
    from offsetlog import testing

    report = testing.Report(
        "file:///x/_doctor", (testing.Check("race", True, ""),), (), 0.0, 0.0, 2, raced, raced, 1.0
    )
    monkeypatch.setattr(testing, "check_store", lambda *args, **about: report)
    result = offsetlog("doctor", "--rounds", "10")
    assert result.status == status
    assert f"There was time to race for {raced} of 10 names" in result.text
    assert ("NOT fit" in result.text) is (status == 1)
    assert ("nothing is known" in result.err) is (status == 1)


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("echo 'openjdk version \"17.0.15\" 2025-04-15' >&2", "17.0.15"),
        ("echo what", "tells no version"),
    ],
)
def test_which_java(script, found, place, monkeypatch):
    program = place / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("JAVA_HOME", str(place))
    assert doctor.java().endswith(found)
    program.chmod(0o644)
    assert "does not run" in doctor.java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", os.devnull)
    assert doctor.java() == doctor.MISSING


def test_the_demo_keeps_its_promises(place, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr("tempfile.tempdir", str(place))
    result = offsetlog("demo", "--no-spark", "--seconds", "3", "--producers", "2", "--json")
    assert result.status == 0, result.err
    findings = json.loads(result.out)
    assert len(findings) == 7 and all(finding["kept"] for finding in findings)
    assert "SIGKILL" in result.err and "took over" in result.err
    assert list(place.glob("offsetlog-demo-*")) == []


def test_ctrl_c_ends_the_demo_quietly_and_leaves_nothing(place):
    with subprocess.Popen(
        [*PROGRAM, "demo", "--no-spark"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment(TMPDIR=str(place)), start_new_session=True,
    ) as process:  # fmt: skip
        while b"producer processes" not in process.stdout.readline():
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=30)
    assert (process.returncode, error) == (130, b"")
    assert list(place.glob("offsetlog-demo-*")) == []


def _story(place, acknowledged):
    """A story without processes: one producer whose acknowledgements are given."""
    story = demo_story.Story(str(place / "log"), 1, 3)
    [producer] = story.producers
    producer.acknowledged, producer.sequence, producer.state = acknowledged, 1, "done"
    story.killed_with = BATCH
    return story


def test_the_demo_would_notice(place):
    """Each finding fails when its promise is broken."""
    import offsetlog as library

    batch = [value for _, value in demo_story.values("shop-1", 0)]
    with library.open(str(place / "log")) as log:
        log.create_topic(demo_story.TOPIC, partitions=1)
        with log.producer() as producer:
            places = [producer.send(demo_story.TOPIC, value) for value in batch]
            told = {(0, future.result().offset): value for future, value in zip(places, batch)}

    def kept(story):
        return [finding.kept for finding in story.reckon()]

    story = _story(place, told)
    story.tail.seen = dict(told)
    assert kept(story) == [True] * 5
    story.producers[0].state = "failed (1)"
    story.tail.seen.popitem()
    assert kept(story) == [False, True, True, False, True]
    lost = _story(place, {**told, (0, BATCH): b"shop-1 order 99"})
    lost.tail.seen = dict(told)
    lost.producers[0].sequence = 2
    assert kept(lost) == [True, False, False, True, True]
    with library.open(str(place / "log")) as log, log.producer() as producer:
        producer.send(demo_story.TOPIC, batch[0]).result()
    assert kept(_story(place, told))[2] is False
    (place / "log" / demo_story.TOPIC / "_log" / "stray").write_text("")
    next((place / "log" / demo_story.TOPIC).rglob("*0.parquet")).unlink()
    with pytest.raises(library.OffsetLogError):
        _story(place, told).reckon()
