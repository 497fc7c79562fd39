"""A task whose plan does not cover its range, or whose files have fewer records than the log says,
fails by name. A planner once gave the beginning of a range for the whole of it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader

import offsetlog
from offsetlog.core.topic.plan import PlannedPiece
from pyspark_offsetlog.datasource import OffsetLogDataSource
from pyspark_offsetlog.options.spec import LogAddress
from pyspark_offsetlog.runtime.jar import SETTING
from pyspark_offsetlog.source import plans, read_tasks
from pyspark_offsetlog.source.offsets import OffsetRange
from pyspark_offsetlog.source.plans import LogPartition
from tests.spark_plugin.java.private import Private
from tests.spark_plugin.live import source
from tests.spark_plugin.test_gaps import consumed, extents, opened, rewrite, send

Pieces = tuple[PlannedPiece, ...]
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Segments and entries by turns, and a compacted topic, whose files have gaps."""
    place = tmp_path_factory.mktemp("forged")
    with opened(place) as log:
        log.create_topic("turns", partitions=2, config={"retention.ms": "-1"})
        log.create_topic("compacted", partitions=2, config=COMPACT)
        for turn in range(3):
            for topic in ("turns", "compacted"):
                send(log, topic, 300, turn)
                send(log, topic, 6, turn)
        rewrite(log, "compacted")
    yield place / "log"


@contextmanager
def forged(spark: Any, reader: str, change: Callable[[Pieces], Pieces]) -> Iterator[Any]:
    """A session in which the planner gives other pieces of partition 0."""

    class Reader(DataSourceReader):
        def __init__(self, real: Any) -> None:
            self.real = real

        def partitions(self) -> Any:
            tasks = self.real.partitions()
            for task in tasks:
                task.work = tuple(
                    work if work.range.partition else work._replace(pieces=change(work.pieces))
                    for work in task.work
                )
            return tasks

        def read(self, partition: Any) -> Any:
            return self.real.read(partition)

    class Forged(DataSource):
        @classmethod
        def name(cls) -> str:
            return "offsetlog"

        def schema(self) -> Any:
            return OffsetLogDataSource(self.options).schema()

        def reader(self, schema: Any) -> Any:
            return Reader(OffsetLogDataSource(self.options).reader(schema))

    session = spark.newSession()
    session.conf.set(SETTING, reader)
    session.dataSource.register(Forged)
    yield session


def message(frame: Any) -> str:
    with pytest.raises(Exception, match="Read again|Run 'offsetlog verify'") as error:
        frame.collect()
    [line, *_] = [line for line in str(error.value).splitlines() if "offsetlog verify" in line]
    return line.partition("IllegalStateException: ")[2]


@pytest.mark.parametrize("reader", ["auto", "python"])
def test_a_plan_of_the_beginning_of_a_range_is_refused(spark: Any, root: Path, reader: str) -> None:
    with offsetlog.open(str(root)) as log:
        end = log.topic("turns").end_offsets()[0]
        reached = extents(log, "turns")[1].end
    with forged(spark, reader, lambda pieces: pieces[:2]) as session:
        said = message(source(session, root, subscribe="turns"))
        assert said == (
            f"The plan of turns-0 from offset 0 to {end} names no file for offsets {reached} to "
            f"{end}. Nothing of it was read. Read again; if that does not help, run 'offsetlog "
            "verify' on the topic."
        )
        # A filter that wants nothing of it asks for the plan, too.
        assert "names no file" in message(
            source(session, root, subscribe="turns").where("offset < 3")
        )
    with forged(spark, reader, lambda pieces: pieces) as session:
        assert source(session, root, subscribe="turns").count() == 2 * end


def test_random_forgeries(spark: Any, root: Path) -> None:
    """Holes, overlaps, ends that are short or long, pieces in another order, and of no offset."""
    steps = Private(spark, "offsetlog.spark.source.Steps")
    read_plan = Private(spark, "offsetlog.spark.source.ReadPlan")
    no_filter = Private(spark, "offsetlog.spark.source.Narrowed").constant("NOT")

    def refused(task: LogPartition) -> str | None:
        plan = read_plan.call("parse", None, plans.encode(task))
        try:
            steps.call("of", None, plan, no_filter)
        except Exception as error:
            return str(error)
        return None

    with offsetlog.open(str(root)) as log:
        for topic in ("turns", "compacted"):
            end = log.topic(topic).end_offsets()[0]
            for seed in range(80):
                chance = random.Random(f"{topic}{seed}")
                start, stop = sorted(chance.sample(range(end + 1), 2))
                work = read_tasks.plan_ranges(log.open_topic, [OffsetRange(topic, 0, start, stop)])
                [task] = read_tasks.plan_tasks(log, LogAddress(log.url), work)
                assert refused(task) is None, (topic, seed)
                pieces = list(work[0].pieces)
                at = chance.randrange(len(pieces))
                piece = pieces[at]
                match chance.randrange(5):
                    case 0 if len(pieces) > 1:
                        del pieces[at]
                    case 1:
                        pieces.insert(at, piece)
                    case 2:
                        pieces[at] = piece._replace(start=piece.start + chance.choice((-1, 1)))
                    case 3:
                        pieces[at] = piece._replace(end=piece.end + chance.choice((-1, 1)))
                    case _ if len(pieces) > 1:
                        pieces[at], pieces[at - 1] = pieces[at - 1], pieces[at]
                    case _:
                        continue
                task.work = (work[0]._replace(pieces=tuple(pieces)),)
                said = refused(task)
                assert said is not None, (topic, seed, pieces)
                assert f"plan of {topic}-0 from offset {start} to {stop}" in said, said


def test_a_segment_that_gives_fewer_records_than_the_log_says(spark: Any, root: Path) -> None:
    """Its first record lies before the offsets that the plan gives it."""
    with offsetlog.open(str(root)) as log:
        kept = [r.offset for r in consumed(log, "compacted") if r.partition == 0]
        [extent] = [
            e for e in extents(log, "compacted") if not e.partition and e.base <= kept[0] < e.end
        ]
    assert extent.rewritten and not extent.dense
    folder = next(root.glob("compacted/partition=0"))
    name = next(folder.glob(f"{extent.base:020d}-{extent.end:020d}-*.parquet"))
    later = kept[0] + 1
    forgery = folder / name.name.replace(f"{extent.base:020d}", f"{later:020d}", 1)
    forgery.write_bytes(name.read_bytes())

    def without_the_first(pieces: Pieces) -> Pieces:
        first, *rest = pieces
        assert first.extent.base == extent.base
        return (first._replace(start=later, extent=first.extent._replace(base=later)), *rest)

    try:
        options = {"startingOffsets": json.dumps({"compacted": {"0": later, "1": 0}})}
        # Neither reader takes it: the JVM leaves it to Python, which says so.
        name = re.escape(str(forgery.relative_to(root)))
        with (
            forged(spark, "auto", without_the_first) as session,
            pytest.raises(Exception, match=f"{name}: the offsets of row group 0 are out of"),
        ):
            source(session, root, subscribe="compacted", **options).collect()
    finally:
        forgery.unlink()
