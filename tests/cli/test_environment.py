"""What ``doctor`` says of Spark: each thing that is wrong, by name, with what to do."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from offsetlog import environment
from offsetlog.environment import spark_checks
from tests.cli.shell import offsetlog

SOURCE = 'format("offsetlog")'


@pytest.fixture(autouse=True)
def pythons(monkeypatch):
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, sys.executable)


def _wrong(java: str = "17.0.9") -> dict[str, str]:
    return {check.name: check.detail for check in spark_checks(java) if not check.passed}


def _python(place: Path, name: str, text: str) -> str:
    program = place / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return str(program)


def test_all_is_well_here(place):
    found = {check.name: check.detail for check in spark_checks("17.0.9") if check.passed}
    assert found.keys() == {"java", "pyspark", "delta-spark", "workers' Python", SOURCE}
    assert found["workers' Python"] == sys.executable
    told = json.loads(offsetlog("doctor", "--processes", "2", "--rounds", "2", "--json").out)
    assert {check["name"] for check in told["spark"]} == found.keys()
    assert told["fit"] is True


@pytest.mark.parametrize(
    ("java", "told"),
    [
        ("11.0.2", "11.0.2 is too old: Spark needs 17 or newer; set JAVA_HOME"),
        ("1.8.0_372", "1.8.0_372 is too old"),
        ("not installed", "not installed: install Java 17"),
    ],
)
def test_java(java, told):
    wrong = _wrong(java)
    assert wrong.keys() == {"java"} and told in wrong["java"]


def test_the_version_of_pyspark(monkeypatch):
    versions = {"pyspark": "3.5.1", "delta-spark": "4.4.0"}
    monkeypatch.setattr(environment, "version_of", versions.get)
    assert _wrong() == {
        "pyspark": '3.5.1: the plugin is made for 4.2; pip install "pyspark==4.2.*"'
    }
    versions.clear()
    assert spark_checks("11") == []


def test_a_worker_python_that_is_none(monkeypatch, tmp_path):
    for program in (str(tmp_path / "nowhere"), _python(tmp_path, "jupyter", "echo a notebook")):
        monkeypatch.setenv("PYSPARK_PYTHON", program)
        wrong = _wrong()
        assert wrong.keys() == {"workers' Python"}
        assert f"{program} is no Python that runs" in wrong["workers' Python"]
        assert f"set PYSPARK_PYTHON={sys.executable}" in wrong["workers' Python"]


def test_a_notebook_server_as_the_drivers_python(monkeypatch, tmp_path):
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", _python(tmp_path, "jupyter", "echo a notebook"))
    assert _wrong().keys() == {"PYSPARK_DRIVER_PYTHON", SOURCE}


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ({"python": "3.8"}, "is Python 3.8, this is"),
        ({"offsetlog": None}, "has no offsetlog"),
        ({"offsetlog": "0.0.1"}, "has offsetlog 0.0.1, this is"),
        ({"error": "No module named 'pyarrow'"}, "cannot run offsetlog: No module named 'pyarrow'"),
    ],
)
def test_another_python(monkeypatch, tmp_path, says, told):
    known = environment.ask(sys.executable)
    answer = {k: v for k, v in {**known, **says}.items() if v is not None}
    monkeypatch.setenv(
        "PYSPARK_PYTHON", _python(tmp_path, "other", f"cat <<'E'\n{json.dumps(answer)}\nE")
    )
    wrong = _wrong()
    assert wrong.keys() == {"workers' Python"} and told in wrong["workers' Python"]


def test_a_source_that_is_not_found(monkeypatch, tmp_path):
    known = environment.ask(sys.executable)
    program = _python(tmp_path, "other", f"echo '{json.dumps({**known, 'found': False})}'")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", program)
    assert "offsetlog.spark.register(spark)" in _wrong()[SOURCE]


def test_it_is_shown(place, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
    result = offsetlog("doctor", "--processes", "2", "--rounds", "2")
    assert result.status == 0
    assert "SPARK" in result.text and "WRONG" in result.text
