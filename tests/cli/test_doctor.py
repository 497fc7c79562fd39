"""``doctor``: it tells the truth, and cleans up."""

from __future__ import annotations

import json
import resource
import socket
import subprocess

import pytest

from offsetlog.cli import doctor
from offsetlog.environment import java, spark_checks
from offsetlog.spark_jar import SparkJar
from tests.cli.shell import PROGRAM, environment, offsetlog

QUICK = ("--processes", "2", "--rounds", "6", "--seconds", "5")


def test_a_local_disk_is_fit_before_any_topic(place):
    result = offsetlog("doctor", *QUICK)
    assert (result.status, result.err) == (0, "")
    assert result.lines[-1].startswith(f"Fit for writing: file://{place}/log (")
    for word in ("MACHINE", "pyarrow", "java", "P50 MS", "race", "Appends a second"):
        assert word in result.text
    assert not (place / "log").exists()


def test_it_leaves_a_log_as_it_is(orders):
    before = sorted((orders / "log").rglob("*"))
    result = json.loads(offsetlog("doctor", *QUICK, "--json").out)
    assert result["fit"] is True and result["filesystem"]["passed"] is True
    assert {fact["what"] for fact in result["machine"]} >= {"python", "fsspec", "java", "pyspark"}
    assert [check["name"] for check in result["spark"]] == [c.name for c in spark_checks(java())]
    assert sorted((orders / "log").rglob("*")) == before


def test_what_cannot_decide_a_race_is_not_fit(place):
    result = offsetlog("--root", f"simplecache::file://{place}/log", "doctor", *QUICK)
    assert result.status == 1
    assert result.lines[-1].startswith("NOT fit for writing: ")
    assert result.err.startswith("offsetlog: this filesystem is not fit") and "s3://" in result.err


def test_a_local_disk_that_is_full_is_not_told_to_be_a_local_disk(place):
    done = subprocess.run(
        [*PROGRAM, "doctor", *QUICK], capture_output=True, env=environment(), check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
    )  # fmt: skip
    told = done.stderr.decode()
    assert done.returncode == 1 and told.count("\n") == 1
    assert "larger than is allowed" in told and "Use a local disk" not in told


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
    assert ("Not known to be fit" in result.text) is (status == 1)
    assert ("is not known" in result.err) is (status == 1)


def test_a_python_that_spark_could_not_use_is_shown(place, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
    result = offsetlog("doctor", *QUICK)
    assert result.status == 0
    assert "SPARK" in result.text and "WRONG" in result.text


def test_the_jar_is_a_path_for_the_shell(place, monkeypatch):
    """Or one line, and no path, where there is none."""
    jar = SparkJar("/with space/offsetlog-spark-4.2.jar")
    monkeypatch.setattr(doctor, "find_jar", lambda version: jar)
    assert offsetlog("doctor", "--spark-jar").out == b"/with space/offsetlog-spark-4.2.jar\n"
    assert json.loads(offsetlog("doctor", "--spark-jar", "--json").out) == jar._asdict()
    monkeypatch.setattr(doctor, "find_jar", lambda version: SparkJar(None, "it rained"))
    result = offsetlog("doctor", "--spark-jar")
    assert (result.status, result.out) == (1, b"")
    assert result.err == (
        "offsetlog: there is no jar: it rained. Python reads, which needs none and is slower; "
        "'offsetlog jar' builds one.\n"
    )
    monkeypatch.setattr(doctor, "version_of", lambda package: None)
    assert "PySpark is not installed" in offsetlog("doctor", "--spark-jar").err
    assert not (place / "log").exists()


def test_what_there_was_no_time_for_is_not_called_ok(place, monkeypatch):
    """Before: `overwrite ok 0 versions, 0 reads meanwhile`, and `Fit for writing`."""
    from offsetlog.testing import conformance

    class Late:
        def __init__(self, *args, **about):
            pass

        def order(self, orders, until):
            nothing = {"faults": [], "done": 0, "reads": 0, "landed": [], "looks": 0, "seconds": 0}
            return [nothing] * len(orders)

        def begin(self, orders, first=0):
            pass

        def answers(self, count, until, first=0):
            return self.order([()] * count, until)

        def close(self):
            pass

    monkeypatch.setattr(conformance, "Crew", Late)
    result = offsetlog("doctor", *QUICK)
    assert result.status == 1
    for name in ("overwrite", "race"):
        (line,) = [line for line in result.lines if line.startswith(name)]
        assert "not measured" in line and "ok" not in line.split()
    assert "not measured by 2 on one topic" in result.text
    assert "NOT fit" not in result.text and "overwrite, race" in result.err


def test_a_mistyped_root_is_not_left_behind(place):
    (place / "there").mkdir()
    assert offsetlog("--root", str(place / "there" / "a" / "b"), "doctor", *QUICK).status == 0
    assert list((place / "there").iterdir()) == []
    assert offsetlog("--root", str(place / "there"), "doctor", *QUICK).status == 0
    assert list((place / "there").iterdir()) == []


def test_a_server_that_is_not_there_is_not_said_to_be_readable(place):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        root = f"http://127.0.0.1:{free.getsockname()[1]}/log"
    result = offsetlog("--root", root, "doctor", *QUICK)
    assert result.status == 1
    assert "can still be read" not in result.err and "It can be read" not in result.err
    assert "Nothing can be read there either" in result.err
    assert "cleaning up" not in result.text and result.err.count("smb://") == 1
