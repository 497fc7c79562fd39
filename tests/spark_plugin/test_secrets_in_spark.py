"""Secrets given as options appear nowhere that Spark shows or keeps: plans, its UI, progress,
its event log, errors, checkpoints, what it prints."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import offsetlog
from tests.secret_forms import find_secret

SECRET, TOKEN = "hun/ter2+hun'ter2=", "t0ken\\t0ken%2f"
"""With what libraries quote and escape."""


@pytest.fixture
def given(moto: Any) -> tuple[str, dict[str, Any]]:
    """A root, and the options of its storage with secrets that the server takes as they are."""
    url, options = moto
    options = {**options, "secret": SECRET, "token": TOKEN}
    with offsetlog.open(f"{url}/secrets", **options) as log:
        log.create_topic("orders", partitions=1)
        with log.producer() as producer:
            producer.send("orders", b"x").result()
    return f"{url}/secrets", options


def _plans(spark: Any) -> str:
    """What the SQL page of Spark's UI shows of all queries."""
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    told = []
    for i in range(executions.size()):
        one = executions.apply(i)
        told += [one.description(), one.details(), one.physicalPlanDescription()]
        told.append(str(one.modifiedConfigs()))
    return "\n".join(told)


@contextlib.contextmanager
def _events(spark: Any, folder: Path) -> Iterator[None]:
    """Spark's event log, of what happens meanwhile."""
    jvm, context = spark._jvm, spark._jsc.sc()
    settings = context.getConf().set("spark.eventLog.compress", "false")
    settings = settings.set("spark.eventLog.rolling.enabled", "false")
    place = jvm.java.net.URI(folder.as_uri())
    none = jvm.scala.Option.empty()
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener("app", none, place, settings)
    listener.start()
    context.addSparkListener(listener)
    try:
        yield
    finally:
        context.listenerBus().waitUntilEmpty()
        context.removeSparkListener(listener)
        listener.stop()


def _explained(frame: Any) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        frame.explain(True)
    return out.getvalue() + frame._jdf.queryExecution().toString()


def test_spark_shows_no_secret(spark: Any, given: Any, tmp_path: Path, capfd: Any) -> None:
    found = find_secret(_shown(spark, given, tmp_path, capfd), SECRET, TOKEN)
    assert found is None, found


def test_spark_shows_no_password_of_a_url(
    spark: Any, sftp: Any, tmp_path: Path, capfd: Any
) -> None:
    """One in ``load(url)`` and in the option ``path``: plans say only how many paths there are."""
    url, about = sftp
    options = dict(about)
    user, password = options.pop("username"), options.pop("password")
    root = url.replace("://", f"://{user}:{password}@") + "/password"
    with offsetlog.open(root, **options) as log:
        log.create_topic("orders", partitions=1)
        with log.producer() as producer:
            producer.send("orders", b"x").result()
    shown = _shown(spark, (root, options), tmp_path, capfd)
    # Its first part is the name of the project.
    found = find_secret(shown, password.removeprefix("offsetlog-"))
    assert found is None, found


def _shown(spark: Any, given: Any, tmp_path: Path, capfd: Any) -> str:
    """All that Spark shows, prints, logs and keeps of a few queries."""
    events = tmp_path / "events"
    events.mkdir()
    with _events(spark, events):
        told = _use(spark, given, tmp_path)
    [written] = [path.read_text() for path in events.rglob("*") if path.is_file()]
    assert "SparkListenerSQLExecutionStart" in written and "QueryStartedEvent" in written
    told += written.splitlines()
    captured = capfd.readouterr()
    told += [captured.out, captured.err]
    return "\n".join(dict.fromkeys(told))


def _use(spark: Any, given: Any, tmp_path: Path) -> list[str]:
    """All that a batch, a query, a write and a mistake show."""
    url, options = given
    storage = {f"storage.{name}": value for name, value in options.items()}
    told = []
    batch = spark.read.format("offsetlog").options(**storage, subscribe="orders").load(url)
    told.append(_explained(batch))
    assert batch.count() == 1
    stream = spark.readStream.format("offsetlog").options(**storage, subscribe="orders")
    rows = stream.option("startingOffsets", "earliest").option("group.id", "g").load(url)
    told.append(_explained(rows))
    writing = rows.selectExpr("value", "'orders' AS topic").writeStream.format("offsetlog")
    place = tmp_path / "checkpoint"
    writing = writing.options(**storage, path=url, checkpointLocation=str(place))
    query = writing.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert query.recentProgress
    told += [json.dumps(dict(p), default=str) + p.json for p in query.recentProgress]
    told += [str(query.status), _java_explained(query)]
    batch.selectExpr("value").write.format("offsetlog").mode("append").options(
        **storage, path=url, topic="orders"
    ).save()
    with pytest.raises(Exception, match="maxOffsetsPerTrigger") as error:
        stream.option("maxOffsetsPerTrigger", "x").load(url).writeStream.format("noop").option(
            "checkpointLocation", str(tmp_path / "other")
        ).trigger(availableNow=True).start().awaitTermination(60)
    told += [str(error.value), repr(error.value)]
    told += [path.read_text(errors="replace") for path in place.rglob("*") if path.is_file()]
    told.append(_plans(spark))
    assert len(told[-1]) > 200, "the SQL page was read"
    return told


def _java_explained(query: Any) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        query.explain(True)
    return out.getvalue()
