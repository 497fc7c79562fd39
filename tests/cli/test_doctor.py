"""``doctor``: it tells the truth, and cleans up."""

from __future__ import annotations

import json

import pytest

from offsetlog.environment import java, spark_checks
from tests.cli.shell import offsetlog

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
    result = json.loads(offsetlog("doctor", *QUICK, "--json").out)
    assert result["fit"] is True and result["filesystem"]["passed"] is True
    assert {fact["what"] for fact in result["machine"]} >= {"python", "fsspec", "java", "pyspark"}
    assert [check["name"] for check in result["spark"]] == [c.name for c in spark_checks(java())]
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


def test_a_python_that_spark_could_not_use_is_shown(place, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
    result = offsetlog("doctor", *QUICK)
    assert result.status == 0
    assert "SPARK" in result.text and "WRONG" in result.text
