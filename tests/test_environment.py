"""What this machine has: which Java, and what Spark lacks."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from offsetlog import environment


@pytest.mark.parametrize(
    ("script", "version"),
    [
        ("echo 'openjdk version \"17.0.15\" 2025-04-15' >&2", "17.0.15"),
        ("echo what", "tells no version"),
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
