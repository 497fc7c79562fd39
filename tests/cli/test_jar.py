"""``offsetlog jar``: a path for the shell, or one line."""

from __future__ import annotations

import json

import pytest

from offsetlog.cli import jar
from offsetlog.spark_jar import SparkJar
from tests.cli.shell import offsetlog


def test_it_prints_a_path_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jar, "ready_jar", lambda version: SparkJar("/with space/x.jar"))
    assert offsetlog("jar").out == b"/with space/x.jar\n"
    assert json.loads(offsetlog("jar", "--json").out) == {"path": "/with space/x.jar", "reason": ""}


def test_where_there_is_none_one_line_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jar, "ready_jar", lambda version: SparkJar(None, "it rained"))
    result = offsetlog("jar")
    assert (result.status, result.out) == (1, b"")
    assert result.err == (
        "offsetlog: there is no jar: it rained. Python reads, which needs none and is slower.\n"
    )
    monkeypatch.setattr(jar, "version_of", lambda package: None)
    assert "PySpark is not installed" in offsetlog("jar").err
