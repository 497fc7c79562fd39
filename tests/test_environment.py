"""What this machine has: its Java and Pythons, and what Spark lacks."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import zipfile
from pathlib import Path

import pytest

import offsetlog
from offsetlog import environment, spark_jar
from offsetlog.environment import spark_checks
from tests import lines
from tests.lines import ROOT

SOURCE = 'format("offsetlog")'


@pytest.fixture(autouse=True)
def pythons(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, sys.executable)
    monkeypatch.setattr(environment, "version_of", {"pyspark": "4.2.0", "delta-spark": "4.4.0"}.get)


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
        ("4.0.5", "21", ""),
        ("4.3.0.dev1", "17.0.15", ""),
        ("4.4.0", "17.0.15", "PySpark is 4.4.0, and offsetlog works with Spark 4.0, 4.1, 4.2 and"),
        ("4.10.1", "21", "PySpark is 4.10.1"),
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
    names = {"java", "pyspark", "delta-spark", "jar for the JVM", "workers' Python", SOURCE}
    assert passed.keys() == names
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


@pytest.mark.parametrize("version", ["3.5.1", "4.4.0"])
def test_the_version_of_pyspark(monkeypatch, version):
    versions = {"pyspark": version}
    monkeypatch.setattr(environment, "version_of", versions.get)
    assert _wrong() == {
        "pyspark": f"{version}: offsetlog works with Spark 4.0, 4.1, 4.2 and 4.3; "
        'pip install "pyspark==4.2.*"'
    }
    versions.clear()
    assert spark_checks("11") == []


@pytest.mark.parametrize(
    ("pyspark", "delta", "wrong", "jar"),
    [
        ("4.0.5", None, None, "_4.0_2.13:4.4.0"),
        ("4.0.1", "4.0.1", None, "_2.13:4.0.1"),
        ("4.1.4", "4.2.0", None, "_4.1_2.13:4.2.0"),
        ("4.2.1", "4.4.0", None, "_4.2_2.13:4.4.0"),
        (
            "4.1.4",
            "4.0.1",
            '4.0.1 has no jar for Spark 4.1; pip install --no-deps "delta-spark==4.4.0"',
            "_4.1_2.13:4.4.0",
        ),
        (
            "4.3.0",
            "4.4.0",
            "4.4.0 has no jar for Spark 4.3; no release has one yet; pip uninstall delta-spark, "
            "or use Spark 4.2",
            None,
        ),
    ],
)
def test_delta_that_fits_spark(monkeypatch, pyspark, delta, wrong, jar):
    versions = {"pyspark": pyspark, "delta-spark": delta}
    monkeypatch.setattr(environment, "version_of", versions.get)
    assert _wrong() == ({} if wrong is None else {"delta-spark": wrong})
    package = None if jar is None else f"io.delta:delta-spark{jar}"
    assert environment.delta_jar(pyspark, delta) == package


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


def test_every_place_knows_the_same_lines_of_spark():
    """Those that are refused, installed, tested and documented."""
    names = environment.SPARK_LINES
    assert tuple(lines.PYSPARK) == names
    assert all(version.startswith(f"{name}.") for name, version in lines.PYSPARK.items())
    default = re.search(r"^pyspark==(.*)$", (ROOT / "constraints.txt").read_text(), re.M)
    assert default and default[1] in lines.PYSPARK.values()
    others = [name for name in names if lines.PYSPARK[name] != default[1]]
    assert f",,{' '.join([*others, lines.NO_JAVAC])})" in (ROOT / "Makefile").read_text()
    after = f"{names[-1].split('.')[0]}.{int(names[-1].split('.')[1]) + 1}"
    assert f"    pyspark>={names[0]},<{after}\n" in (ROOT / "setup.cfg").read_text()
    assert f"| | {' | '.join(names)} |" in (ROOT / "docs" / "versions.md").read_text()
    assert {name for of in environment.DELTA_RELEASES.values() for name in of} <= {*names}


@pytest.fixture
def jars(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of an installed package's jars."""
    package = tmp_path / "pyspark_offsetlog"
    (package / "jars").mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('it is only looked for')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pyspark_offsetlog", raising=False)
    return package / "jars"


def put_jar(path: Path, version: str, spark: str) -> str:
    manifest = f"Implementation-Version: {version}\r\nOffsetlog-Spark-Lines: {spark}\r\n\r\n"
    with zipfile.ZipFile(path, "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", manifest)
    return str(path)


def test_the_jar_for_this_spark(jars: Path) -> None:
    assert spark_jar.spark_jar("4.2.0") == (
        None, "this offsetlog has no jar for Spark 4.2", False,
    )  # fmt: skip
    old = put_jar(jars / "old.jar", "0.0.9", "4.2")
    found = spark_jar.spark_jar("4.2.1-amzn-0")
    assert found.path is None and found.is_of_another_version
    assert found.reason == f"{old} is of offsetlog 0.0.9, and this is {offsetlog.__version__}"
    (jars / "broken.jar").write_bytes(b"PK")
    new = put_jar(jars / "new.jar", offsetlog.__version__, "4.2 4.3")
    assert spark_jar.spark_jar("4.2.0") == (new, "", False)
    assert spark_jar.spark_jar("4.3.0").path == new
    assert spark_jar.spark_jar("4.1.4").path is None


def test_a_jar_of_another_version_is_wrong_and_none_is_slower(jars: Path) -> None:
    def check() -> environment.SparkCheck:
        [found] = [c for c in spark_checks("17.0.15") if c.name == "jar for the JVM"]
        return found

    assert (check().passed, check().result) == (True, "slower")
    why = "this offsetlog has no jar for Spark 4.2; get one: offsetlog jar"
    assert check().detail == f"slower: no jar, so Python reads and writes: {why}"
    put_jar(jars / "old.jar", "0.0.9", "4.2")
    assert not check().passed and "is of offsetlog 0.0.9" in check().detail
    assert check().detail.startswith("slower: no jar") and check().result == "WRONG"
    assert put_jar(jars / "new.jar", offsetlog.__version__, "4.2") == check().detail
    assert check().result == "ok"
