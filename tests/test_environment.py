"""What this machine has: its Java and Pythons, and what Spark lacks."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from offsetlog import environment
from offsetlog.environment import spark_checks

SOURCE = 'format("offsetlog")'


@pytest.fixture(autouse=True)
def pythons(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, sys.executable)


@pytest.mark.parametrize(
    ("script", "version"),
    [
        ("echo 'openjdk version \"17.0.15\" 2025-04-15' >&2", "17.0.15"),
        ("echo what", "shows no version"),
    ],
)
def test_which_java(
    script: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert environment.java().endswith(version)
    program.chmod(0o644)
    assert "does not run" in environment.java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", os.devnull)
    assert environment.java() == environment.MISSING


@pytest.mark.parametrize(
    ("version", "java", "lacks"),
    [
        ("4.2.0", "17.0.15", ""),
        ("4.10.1", "21", ""),
        ("4.1.1", "17.0.15", "PySpark is 4.1.1"),
        ("3.5.0", "17.0.15", "PySpark is 3.5.0"),
        ("4.2.0", "11.0.2", "Java is 11.0.2"),
        ("4.2.0", "1.8.0_292", "Java is 1.8"),
        ("4.2.0", environment.MISSING, "there is no Java"),
        ("4.2.0", "/opt/jdk-21/bin/java does not run", "/opt/jdk-21/bin/java does not run"),
    ],
)
def test_what_is_lacking(
    monkeypatch: pytest.MonkeyPatch, version: str, java: str, lacks: str
) -> None:
    monkeypatch.setattr(environment.metadata, "version", lambda name: version)
    monkeypatch.setattr(environment, "java", lambda: java)
    text = environment.spark_lacks()
    assert text.startswith(lacks) if lacks else text == ""
    monkeypatch.setattr(environment.importlib.util, "find_spec", lambda name: None)
    assert environment.spark_lacks().startswith("PySpark is not installed")


def _wrong(java: str = "17.0.9") -> dict[str, str]:
    return {check.name: check.detail for check in spark_checks(java) if not check.passed}


def _python(place: Path, name: str, text: str) -> str:
    program = place / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return str(program)


def test_all_is_well_here():
    passed = {check.name: check.detail for check in spark_checks("17.0.9") if check.passed}
    assert passed.keys() == {"java", "pyspark", "delta-spark", "workers' Python", SOURCE}
    assert passed["workers' Python"] == sys.executable


@pytest.mark.parametrize(
    ("java", "detail"),
    [
        ("11.0.2", "11.0.2 is too old: Spark needs 17 or newer; set JAVA_HOME"),
        ("1.8.0_372", "1.8.0_372 is too old"),
        ("not installed", "not installed: install Java 17"),
    ],
)
def test_java(java, detail):
    wrong = _wrong(java)
    assert wrong.keys() == {"java"} and detail in wrong["java"]


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
        assert f"{program} is not a Python that runs" in wrong["workers' Python"]
        assert f"set PYSPARK_PYTHON={sys.executable}" in wrong["workers' Python"]


def test_a_notebook_server_as_the_drivers_python(monkeypatch, tmp_path):
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", _python(tmp_path, "jupyter", "echo a notebook"))
    assert _wrong().keys() == {"PYSPARK_DRIVER_PYTHON", SOURCE}


@pytest.mark.parametrize(
    ("differs", "detail"),
    [
        ({"python": "3.8"}, "is Python 3.8, this is"),
        ({"offsetlog": None}, "has no offsetlog"),
        ({"offsetlog": "0.0.1"}, "has offsetlog 0.0.1, this is"),
        ({"error": "No module named 'pyarrow'"}, "cannot run offsetlog: No module named 'pyarrow'"),
    ],
)
def test_another_python(monkeypatch, tmp_path, differs, detail):
    report = environment.ask(sys.executable)
    answer = {k: v for k, v in {**report, **differs}.items() if v is not None}
    monkeypatch.setenv(
        "PYSPARK_PYTHON", _python(tmp_path, "other", f"cat <<'E'\n{json.dumps(answer)}\nE")
    )
    wrong = _wrong()
    assert wrong.keys() == {"workers' Python"} and detail in wrong["workers' Python"]


def test_a_source_that_is_not_found(monkeypatch, tmp_path):
    report = environment.ask(sys.executable)
    program = _python(tmp_path, "other", f"echo '{json.dumps({**report, 'found': False})}'")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", program)
    assert "offsetlog.spark.register(spark)" in _wrong()[SOURCE]
