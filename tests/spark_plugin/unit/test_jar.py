"""The jar in a session: put in place where there is one, and an error only where it is a must."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from offsetlog.errors import InvalidRequestError
from offsetlog.spark_jar import SparkJar
from pyspark_offsetlog.lines import jvm
from pyspark_offsetlog.runtime import jar

PATH = "/lib/offsetlog-spark-4.2.jar"


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Callable[[SparkJar], None]:
    return lambda found: monkeypatch.setattr(jar, "ready_jar", lambda version: found)


class Session:
    """One that runs, and that was given jars."""

    version = "4.2.0"

    def __init__(self, reader: str | None = None) -> None:
        self.statements: list[str] = []
        self.conf = SimpleNamespace(get=lambda name, default: reader or default)

    def sql(self, statement: str) -> None:
        self.statements.append(statement)


def test_a_new_session_gets_it_beside_the_users_own(there: Any) -> None:
    there(SparkJar(PATH))
    assert jar.with_jar({}) == {"spark.jars": PATH}
    config = {"spark.jars": "/mine.jar", "spark.offsetlog.reader": "jvm", "a": 1}
    assert jar.with_jar(config) == {**config, "spark.jars": f"/mine.jar,{PATH}"}


def test_a_session_that_runs_gets_it_once(there: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    there(SparkJar(PATH))
    for listed, statements in (
        (["spark://x:1/jars/other.jar"], [f"ADD JAR '{PATH}'"]),
        (["spark://x:1/jars/offsetlog-spark-4.2.jar"], []),
        (None, []),
    ):
        monkeypatch.setattr(jvm, "jars", lambda spark, listed=listed: listed)
        session = Session()
        jar.add_jar(session)
        assert session.statements == statements
    there(SparkJar("/it's/offsetlog-spark-4.2.jar"))
    monkeypatch.setattr(jvm, "jars", lambda spark: [])
    session = Session()
    jar.add_jar(session)
    assert session.statements == ['ADD JAR "/it\'s/offsetlog-spark-4.2.jar"']


def test_where_there_is_none_a_line_of_the_log_says_why(
    there: Any,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there(SparkJar(None, "it rained"))
    monkeypatch.setattr(jvm, "jars", lambda spark: [])
    with caplog.at_level(logging.INFO):
        assert jar.with_jar({"a": 1}) == {"a": 1}
        jar.add_jar(Session())
    assert caplog.messages == ["Python reads segments, not Spark's JVM: it rained."] * 2
    [line] = capfd.readouterr().err.splitlines()
    assert "slower: it rained" in line and "'offsetlog jar' makes a jar" in line
    for ask in (lambda: jar.with_jar({"spark.offsetlog.reader": "jvm"}),
                lambda: jar.add_jar(Session("jvm"))):  # fmt: skip
        with pytest.raises(InvalidRequestError, match="the JVM has no reader: it rained"):
            ask()


def test_a_reader_that_is_none(there: Any) -> None:
    there(SparkJar(PATH))
    with pytest.raises(InvalidRequestError, match="reader is 'jmv', which is no reader") as error:
        jar.with_jar({"spark.offsetlog.reader": "jmv"})
    assert "Did you mean 'jvm'?" in str(error.value)
