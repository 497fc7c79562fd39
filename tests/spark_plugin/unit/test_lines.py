"""Lines of Spark, without Spark: where batches start when Spark does not say, and versions that
are not known."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from offsetlog.errors import InvalidRequestError
from pyspark_offsetlog import datasource
from pyspark_offsetlog.lines import classes
from pyspark_offsetlog.lines.batch_starts import BatchStarts
from pyspark_offsetlog.runtime import session
from pyspark_offsetlog.schema import source_schema
from pyspark_offsetlog.source import stream
from pyspark_offsetlog.source.stream import OffsetLogStreamReader
from tests.servers.process import ROOT
from tests.spark_plugin.unit.engine import fill
from tests.spark_plugin.unit.query_tools import log_of_orders

LINES = "offsetlog works with Spark 4.0, 4.1, 4.2 and 4.3"
pytestmark = pytest.mark.root_in("memory")
log = log_of_orders(partitions=1)


def initial() -> dict[str, Any]:
    return {"t": {"0": 0}}


def at(offset: int) -> dict[str, Any]:
    return {"t": {"0": offset}}


def test_a_new_query_begins_at_the_initial_offset_and_goes_on_at_its_last_answer():
    starts = BatchStarts()
    for begin, end in ((0, 4), (4, 9), (9, 9), (9, 12)):
        assert starts.next(initial) == at(begin)
        starts.answered(at(end))
        if begin != end:
            starts.planned(at(begin), at(end), initial)


def test_a_first_batch_of_nothing_is_no_restart():
    starts = BatchStarts()
    starts.answered(starts.next(initial))
    starts.planned(initial(), initial(), initial)
    assert starts.next(initial) == initial()


def test_a_restart_goes_on_at_the_newest_logged_offset():
    starts = BatchStarts()
    starts.planned(at(7), at(7), pytest.fail)
    starts.planned(at(3), at(7), pytest.fail)  # The batch that is run again.
    assert starts.next(pytest.fail) == at(7)


def test_a_start_that_comes_after_the_question_is_refused():
    starts = BatchStarts()
    starts.answered(starts.next(initial) and at(4))
    with pytest.raises(InvalidRequestError, match=r"triggerAvailableNowWrapper.enabled is set"):
        starts.planned(at(2), at(2), initial)


# --- a whole reader, asked as Spark before 4.2 asks ----------------------------------------


def reader(root: str, **given: str) -> OffsetLogStreamReader:
    options = {"path": root, "subscribe": "orders", "startingoffsets": "earliest", **given}
    return OffsetLogStreamReader(options, source_schema(False))


def test_limits_and_restarts_without_a_start(
    root: str, log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "STARTS_ARE_GIVEN", False)
    fill(log, "orders", {0: 10})
    first = reader(root, maxoffsetspertrigger="4")
    ends = [first.latestOffset()["orders"]["0"] for _ in range(4)]
    assert ends == [4, 8, 10, 10]
    second = reader(root, maxoffsetspertrigger="4")
    assert second.partitions({"orders": {"0": 4}}, {"orders": {"0": 4}}) == []
    assert [second.latestOffset()["orders"]["0"] for _ in range(2)] == [8, 10]


def test_a_run_of_one_batch_says_what_it_left(
    root: str, log: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stream, "STARTS_ARE_GIVEN", False)
    fill(log, "orders", {0: 10})
    given = {"maxoffsetspertrigger": "4", "group.id": "g"}
    run = reader(root, **given)
    end = run.latestOffset()
    assert len(run.partitions(run.initialOffset(), end)) == 1
    run.stop()
    [line] = capfd.readouterr().err.splitlines()
    assert "Spark before 4.2 makes a single batch of availableNow and once" in line
    assert (
        "leaves 6 records to its next start, by its limits, and commits it for the group 'g'"
        in line
    )
    assert log.group("g").lag() == {}
    again = reader(root, **given)
    again.partitions(end, end)
    again.latestOffset(), again.latestOffset(), again.latestOffset()
    again.stop()
    assert capfd.readouterr().err == ""
    assert log.group("g").lag() == {("orders", 0): 0}


def test_a_run_that_only_ran_a_batch_again_says_so(
    root: str, log: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stream, "STARTS_ARE_GIVEN", False)
    fill(log, "orders", {0: 10})
    run = reader(root)
    begin, end = run.initialOffset(), run.latestOffset()
    run = reader(root)
    run.partitions(end, end)
    run.partitions(begin, end)
    run.stop()
    assert "only ran its last batch again: start it once more" in capfd.readouterr().err


def test_the_class_in_the_jvm_says_what_it_asks(
    root: str, log: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The calls of Spark before 4.2, by which it hands over those of 4.2."""
    monkeypatch.setattr(stream, "STARTS_ARE_GIVEN", False)
    fill(log, "orders", {0: 10})
    run = reader(root, **{"maxoffsetspertrigger": "4", "group.id": "g"})
    run.commit({"@ask": "availableNow"})
    fill(log, "orders", {0: 5})
    ends, start = [], run.initialOffset()
    for _ in range(3):
        run.commit({"@ask": {"start": start, "limited": True}})
        end = run.latestOffset()
        ends.append(end["orders"]["0"])
        if len(ends) > 1:
            run.commit(start)
        run.commit({"@ask": "latest"})
        assert run.latestOffset()["orders"]["0"] >= 10
        assert run.partitions(start, end)
        start = end
    assert ends == [4, 8, 10]
    run.commit({"@ask": {"start": start, "limited": True}})
    assert run.latestOffset() == start
    assert log.group("g").lag() == {("orders", 0): 5}
    run.stop()
    assert capfd.readouterr().err == ""
    once = reader(root, maxoffsetspertrigger="4")
    once.commit({"@ask": {"start": once.initialOffset(), "limited": False}})
    assert once.latestOffset()["orders"]["0"] == 15


@pytest.mark.parametrize("text", ['{"t": {"0": 4}}', "{'t': {'0': 4}}", "None", "{1", "f()"])
def test_an_offset_in_the_progress_of_spark_connect(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Before 4.2 it is what Python shows of it."""
    monkeypatch.setattr(classes, "STARTS_ARE_GIVEN", False)
    if text in ("{1", "f()"):
        with pytest.raises(ValueError):
            classes.progress_offset(text)
    else:
        assert classes.progress_offset(text) in (at(4), None)


# --- other versions of Spark ---------------------------------------------------------------


@pytest.mark.parametrize("version", ["4.4.0", "5.0.0", "4.10.1-amzn-0"])
def test_a_newer_spark_is_refused_when_the_source_is_made(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(datasource.pyspark, "__version__", version)
    with pytest.raises(InvalidRequestError, match=f"This is Spark {version}, and {LINES}"):
        datasource.OffsetLogDataSource({"path": "/nowhere"})


def test_a_server_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    class Connected:
        version = "3.5.4"

    with pytest.raises(InvalidRequestError, match=f"This is Spark 3.5.4, and {LINES}"):
        session.register_source(Connected())


CALLS = (
    "offsetlog.spark.session()",
    "offsetlog.spark.register(None)",
    "offsetlog.spark.lag(None, '/nowhere')",
    "offsetlog.spark.watch_lag(None)",
    "__import__('pyspark_offsetlog')",
)


@pytest.mark.parametrize("call", CALLS)
def test_an_older_spark_is_one_sentence(tmp_path: Path, call: str) -> None:
    """It has no Python data sources, so importing ours must not come first."""
    for package in ("pyspark", "pyspark/sql"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "pyspark" / "__init__.py").write_text("__version__ = '3.5.4'\n")
    run = _python(f"import offsetlog.spark; {call}", PYTHONPATH=str(tmp_path))
    assert run.splitlines()[-1].startswith(
        f"offsetlog.errors.InvalidRequestError: This is Spark 3.5.4, and {LINES}"
    )
    assert "ImportError" not in run


def test_no_pyspark_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ModuleNotFoundError('no', name='pyspark')")
    run = _python("import offsetlog.spark; offsetlog.spark.session()", PYTHONPATH=str(tmp_path))
    assert 'PySpark is not installed. Install it with: pip install "pyspark==' in run


def _python(code: str, **env: str) -> str:
    path = os.pathsep.join([env.pop("PYTHONPATH"), str(ROOT), str(ROOT / "spark_plugin")])
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": path, **env},
    )
    assert run.returncode == 1
    return run.stderr


# --- Delta ---------------------------------------------------------------------------------


def test_the_jar_of_delta_is_the_one_for_this_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.pyspark, "__version__", "4.1.4")
    monkeypatch.setattr(session, "version_of", lambda package: None)
    packages = session._delta({})[session.PACKAGES]
    assert packages == "io.delta:delta-spark_4.1_2.13:4.4.0"
    packages = session._delta({session.PACKAGES: "a:b:1"})[session.PACKAGES]
    assert packages == "io.delta:delta-spark_4.1_2.13:4.4.0,a:b:1"
    chosen = {session.PACKAGES: "io.delta:delta-spark_2.13:9"}
    assert session._delta(chosen)[session.PACKAGES] == chosen[session.PACKAGES]


def test_a_spark_without_delta_is_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session.pyspark, "__version__", "4.3.0")
    assert session._delta({}) == {}
    assert "There is no Delta for Spark 4.3 yet" in capfd.readouterr().err
