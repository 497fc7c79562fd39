"""Secrets given as options appear nowhere that Spark shows or keeps: plans, its UI, progress,
errors, checkpoints, what it prints."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

import offsetlog

SECRET, TOKEN = "hunter2-hunter2", "t0ken-t0ken"


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


def _explained(frame: Any) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        frame.explain(True)
    return out.getvalue() + frame._jdf.queryExecution().toString()


def test_spark_shows_no_secret(spark: Any, given: Any, tmp_path: Path, capfd: Any) -> None:
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
    captured = capfd.readouterr()
    told += [captured.out, captured.err]
    for text in told:
        for secret in (SECRET, TOKEN):
            assert secret not in text, text[max(0, text.find(secret) - 300) :][:600]


def _java_explained(query: Any) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        query.explain(True)
    return out.getvalue()
