"""writeStream to a log: what Spark's own KafkaSinkSuite asks for, and exactly once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as sql

import offsetlog
from pyspark_offsetlog.lines.classes import STARTS_ARE_GIVEN
from tests.spark_plugin.live import lose_commit
from tests.spark_plugin.written import records, values, write
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("tasks_in")


class Fed:
    """A query over files that a test adds, one micro-batch for each; run until it is dry."""

    def __init__(self, spark: Any, place: Path, *columns: str, **options: str) -> None:
        self.spark = spark
        self.place = place
        self.root = place / "log"
        self.checkpoint = place / "checkpoint"
        self.columns = columns or ("value",)
        self.options = {"path": str(self.root), **options}
        self.mode = "append"
        self.input = place / "input"
        self.input.mkdir(parents=True)
        self._files = 0

    def add(self, *lines: str) -> Fed:
        self._files += 1
        name = f"{self._files:05}.txt"
        (self.place / name).write_text("\n".join(lines) + "\n")
        (self.place / name).rename(self.input / name)
        return self

    def start(self, **trigger: Any) -> Any:
        source = self.spark.readStream.option("maxFilesPerTrigger", "1").text(str(self.input))
        writer = source.selectExpr(*self.columns).writeStream.format("offsetlog")
        writer = writer.option("checkpointLocation", str(self.checkpoint)).options(**self.options)
        return writer.outputMode(self.mode).trigger(**(trigger or {"availableNow": True})).start()

    def run(self) -> Any:
        query = self.start()
        assert query.awaitTermination(180)
        return query

    def error(self) -> str:
        """The message of an error that ends it."""
        with pytest.raises(Exception) as error:
            self.run()
        told = str(error.value)
        assert "Traceback" not in told
        return told


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with offsetlog.open(str(tmp_path / "log")) as log:
        log.create_topic("t", partitions=2)
    return tmp_path


@pytest.mark.every_line
def test_a_topic_by_the_column_or_by_the_option_which_wins(spark: Any, place: Path) -> None:
    """streaming - write to kafka with topic field; with topic option; with both"""
    by_column = Fed(spark, place / "a", "'t' AS topic", "value", path=str(place / "log"))
    by_option = Fed(spark, place / "b", "value", topic="t", path=str(place / "log"))
    both = Fed(spark, place / "c", "'foo' AS topic", "value", topic="t", path=str(place / "log"))
    for i, query in enumerate((by_column, by_option, both)):
        query.add(f"{i}1", f"{i}2").run()
        query.add(f"{i}3").add(f"{i}4").run()
    expected = sorted(f"{i}{j}".encode() for i in range(3) for j in range(1, 5))
    assert values(place / "log", "t") == expected


@pytest.mark.parametrize(
    ("columns", "options", "told"),
    [
        (["value AS key", "value"], {}, "neither the option topic nor a column 'topic'"),
        (["'t' AS topic", "value AS key"], {}, "The rows have no column 'value'."),
        (["value", "value AS partition"], {"topic": "t"}, "Column 'partition' is string"),
        (["value"], {"topic": "nowhere"}, "There is no topic 'nowhere'"),
        (["value", "'nowhere' AS topic"], {}, "There is no topic 'nowhere'"),
        (["value", "CAST(null AS STRING) AS topic"], {}, "have a null in column 'topic'"),
        (["value"], {"topic": "t", "checkpointlokation": "x"}, "no option 'checkpointlokation'"),
        (["value"], {"topic": "t", "txnAppId": "a", "txnVersion": "1"}, "are set for a stream"),
        (["value", "9 AS partition"], {"topic": "t"}, "Topic 't' has no partition 9."),
    ],
)
def test_what_is_refused(
    spark: Any, place: Path, columns: list[str], options: dict[str, str], told: str
) -> None:
    """streaming - bad schema; wrong types; non-existing topic; wrong options"""
    query = Fed(spark, place / "fed", *columns, path=str(place / "log"), **options)
    assert told in query.add("1", "2").error()
    assert records(place / "log", "t") == []


def test_progress_is_told(spark: Any, place: Path) -> None:
    """streaming - sink progress is produced"""
    query = Fed(spark, place / "fed", path=str(place / "log"), topic="t").add("a", "b", "a")
    assert sum(progress.sink.numOutputRows for progress in query.run().recentProgress) == 3


@pytest.mark.parametrize("mode", ["complete", "update"])
def test_output_modes(spark: Any, place: Path, mode: str) -> None:
    """Complete appends the whole result each time, as with Kafka. Spark itself keeps Update from
    every source that is written in Python."""
    fed = Fed(spark, place / "fed", path=str(place / "log"), topic="t").add("a", "b", "a")
    source = spark.readStream.text(str(fed.input))
    frame = source.groupBy("value").count().selectExpr("concat(value, count) AS value")
    writer = frame.writeStream.format("offsetlog").options(**fed.options).outputMode(mode)
    writer = writer.option("checkpointLocation", str(fed.checkpoint)).trigger(availableNow=True)
    if mode == "update":
        with pytest.raises(Exception, match="does not support Update mode"):
            writer.start().awaitTermination(180)
        return
    for _ in range(2):
        assert writer.start().awaitTermination(180)
        fed.add("b")
    assert values(place / "log", "t") == [b"a2", b"a2", b"b1", b"b2"]


def test_a_query_that_goes_on(spark: Any, place: Path) -> None:
    """With the default trigger, micro-batch after micro-batch."""
    query = Fed(spark, place / "fed", topic="t", path=str(place / "log"), queryName="by-name")
    running = query.start(processingTime="0 seconds")
    try:
        with offsetlog.open(str(place / "log")) as log:
            for i in range(5):
                query.add(f"{i}")
                until(lambda i=i: sum(log.topic("t").end_offsets().values()) == i + 1)
        assert running.exception() is None
    finally:
        running.stop()
    assert values(place / "log", "t") == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.every_line(both_paths=True)
def test_a_batch_that_is_run_again_after_its_commit_was_lost(spark: Any, place: Path) -> None:
    query = Fed(spark, place / "fed", topic="t", path=str(place / "log"))
    query.add("a").add("b").run()
    for _ in range(2):
        lose_commit(query.checkpoint, 1)
        query.run()
    query.add("c").run()
    assert values(place / "log", "t") == [b"a", b"b", b"c"]


@pytest.mark.every_line
def test_a_checkpoint_that_lost_its_metadata(spark: Any, place: Path) -> None:
    """Spark before 4.2 takes it for another query then, and would write the batch twice."""
    query = Fed(spark, place / "fed", topic="t", path=str(place / "log"))
    query.add("a").add("b").run()
    lose_commit(query.checkpoint, 1)
    metadata = query.checkpoint / "metadata"
    written = metadata.read_text()
    metadata.unlink()
    (query.checkpoint / ".metadata.crc").unlink(missing_ok=True)
    error = query.error()
    assert values(place / "log", "t") == [b"a", b"b"]
    if not STARTS_ARE_GIVEN:
        assert written.strip() in error and "lost its file 'metadata'" in error
    metadata.write_text(written)
    (query.checkpoint / ".metadata.crc").unlink(missing_ok=True)
    query.add("c").run()
    assert values(place / "log", "t") == [b"a", b"b", b"c"]


def test_a_checkpoint_that_was_copied_is_the_same_query(spark: Any, place: Path) -> None:
    """Two drivers run the same batch, with other rows: the first one counts."""
    query = Fed(spark, place / "fed", topic="t", path=str(place / "log")).add("a")
    query.run()
    lose_commit(query.checkpoint, 0)
    shutil.copytree(query.checkpoint, place / "copy")
    query.columns = ("concat(value, '-other') AS value",)
    query.checkpoint = place / "copy"
    query.add("b").run()
    assert values(place / "log", "t") == [b"a", b"b-other"]


def test_a_new_checkpoint_is_a_new_query(spark: Any, place: Path) -> None:
    query = Fed(spark, place / "fed", topic="t", path=str(place / "log")).add("a")
    query.run()
    query.checkpoint = place / "anew"
    query.run()
    assert values(place / "log", "t") == [b"a", b"a"]


def test_many_rows_in_a_micro_batch(spark: Any, place: Path) -> None:
    columns = ("value AS key", "concat(value, repeat('p', 200)) AS value")
    query = Fed(spark, place / "fed", *columns, topic="t", path=str(place / "log"))
    query.add(*(str(i) for i in range(3000))).add(*(str(i) for i in range(3000, 3010))).run()
    found = records(place / "log", "t")
    assert sorted(int(r.key) for r in found) == list(range(3010))
    names = [path.parent.name for path in (place / "log" / "t").rglob("partition=*/*.parquet")]
    assert sorted(names) == ["partition=0", "partition=1"]


def test_a_topic_that_was_deleted_and_created_again(spark: Any, place: Path) -> None:
    query = Fed(spark, place / "fed", topic="t", path=str(place / "log")).add("a")
    query.run()
    with offsetlog.open(str(place / "log")) as log:
        log.delete_topic("t")
        assert "Topic 't' was deleted." in query.add("b").error()
        log.create_topic("t", partitions=2)
    query.run()
    with offsetlog.open(str(place / "log")) as log:
        ends, starts = log.topic("t").end_offsets(), log.topic("t").beginning_offsets()
        assert sum(ends.values()) - sum(starts.values()) == 1


@pytest.mark.every_line
def test_a_topic_that_is_deleted_while_a_batch_is_written(spark: Any, place: Path) -> None:
    """Spark aborts with a writer that it makes anew: an error there would hide this one."""
    root = str(place / "log")

    def gone(value: str) -> str:
        with offsetlog.open(root) as log:
            log.delete_topic("t")
        return value

    query = Fed(spark, place / "fed", "deleting(value) AS value", topic="t", path=root).add("a")
    spark.udf.register("deleting", sql.udf(gone, useArrow=False).asNondeterministic())
    assert "Topic 't' was deleted; nothing was written. Create it again" in query.error()


@pytest.mark.every_line(both_paths=True)
def test_foreach_batch_with_a_failure_between(spark: Any, place: Path) -> None:
    """The batch was written to one log when the other write failed: both have it once."""
    query = Fed(spark, place / "fed").add("a").add("b")
    failures = []

    def both(frame: Any, batch: int) -> None:
        for root, topic in ((place / "log", "t"), (place / "log", "u")):
            if topic == "u" and batch not in failures:
                failures.append(batch)
                raise ValueError("between the two")
            write(frame, root, topic, txnAppId="job-1", txnVersion=str(batch))

    with offsetlog.open(str(place / "log")) as log:
        log.create_topic("u")
    for expected in (1, 2):
        run = _for_each(spark, query, both)
        with pytest.raises(Exception, match="between the two"):
            run.awaitTermination(180)
        assert len(failures) == expected
    assert _for_each(spark, query, both).awaitTermination(180)
    assert values(place / "log", "t") == values(place / "log", "u") == [b"a", b"b"]


def _for_each(spark: Any, fed: Fed, call: Any) -> Any:
    source = spark.readStream.option("maxFilesPerTrigger", "1").text(str(fed.input))
    writer = source.writeStream.foreachBatch(call).trigger(availableNow=True)
    return writer.option("checkpointLocation", str(fed.checkpoint)).start()
