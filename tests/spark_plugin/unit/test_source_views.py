"""Tasks and a driver that do not see the root alike, when they read: all rows, or an error, and
never fewer; no Spark runs here."""

from __future__ import annotations

import contextlib
import pickle
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import offsetlog
from offsetlog.client.log import Log
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import CorruptLogError, InvalidRequestError, OffsetLogError, StorageError
from pyspark_offsetlog.about import tables
from pyspark_offsetlog.options.check import source_options
from pyspark_offsetlog.runtime.open_logs import open_log
from pyspark_offsetlog.schema import source_schema
from pyspark_offsetlog.source.batch import OffsetLogReader
from pyspark_offsetlog.source.stream import OffsetLogStreamReader
from tests.spark_plugin.unit.engine import Checkpoint, Engine, at, fill
from tests.spark_plugin.unit.views import VIEWS, another_process, keep_copy, seen_as, tree

LOSS = pytest.mark.parametrize("loss", ["true", "false"])
SIZES = {"in entries": 4, "in segments": 200_000}
OFFSETS = {("t", 0): [0, 1, 2, 3], ("t", 1): [0, 1, 2, 3]}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    another_process()
    place = tmp_path / "log"
    with offsetlog.open(str(place)) as log:
        log.create_topic("t", partitions=2)
    return place


@pytest.fixture
def there(place: Path) -> Iterator[Log]:
    """The log as its users see it."""
    with offsetlog.open(str(place)) as log:
        yield log


def reader(place: Path, loss: str, **given: str) -> OffsetLogReader:
    options = {"path": str(place), "failondataloss": loss, **(given or {"subscribe": "t"})}
    return OffsetLogReader(source_options(options, False), source_schema(False))


def read(made: Any, tasks: Any) -> dict[tuple[str, int], list[int]]:
    """The offsets that tasks read, each of which came as Spark sends it."""
    out: dict[tuple[str, int], list[int]] = {}
    for task in tasks:
        for batch in made.read(pickle.loads(pickle.dumps(task))):
            for row in batch.to_pylist():
                out.setdefault((row["topic"], row["partition"]), []).append(row["offset"])
    return out


# --- tasks ---------------------------------------------------------------------------------


@LOSS
@pytest.mark.parametrize("used_before", [False, True], ids=["new process", "used before"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("view", VIEWS)
def test_a_task_reads_what_was_planned_or_fails(
    place: Path, there: Log, view: str, size: str, used_before: bool, loss: str
) -> None:
    fill(there, "t", {0: 2, 1: 2}, SIZES[size])
    keep_copy(place)
    fill(there, "t", {0: 2, 1: 2}, SIZES[size])
    made = reader(place, loss, subscribe="t", minpartitions="2")
    tasks = made.partitions()
    another_process()
    if used_before:
        assert read(made, tasks) == OFFSETS
        assert open_log(tasks[0].place).topic("t").end_offsets() == {0: 4, 1: 4}
    with seen_as(view, place):
        for task in tasks:
            if view == "older" and used_before:
                _all_or_an_error(made, task)
                continue
            with pytest.raises(StorageError) as failed:
                read(made, [task])
            said = str(failed.value)
            assert socket.gethostname() in said and str(place) in said
            assert ("the log only up to 2, at" in said) == (view == "older")
            assert "failOnDataLoss" not in said
    assert read(made, tasks) == OFFSETS


def _all_or_an_error(made: OffsetLogReader, task: Any) -> None:
    """Of a process that has the whole chain in memory: some files are needed, some are not."""
    [work] = task.work
    topic, partition, start, end = work.range
    try:
        assert read(made, [task]) == {(topic, partition): [*range(start, end)]}
    except CorruptLogError as error:
        assert "is not there, and the log still names it" in error.message


def test_a_view_that_is_late_is_waited_for(
    place: Path, there: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a network disk's, which is a moment behind."""
    fill(there, "t", {0: 2, 1: 2}, 200_000)
    keep_copy(place)
    fill(there, "t", {0: 2, 1: 2}, 200_000)
    made = reader(place, "true")
    tasks = made.partitions()
    another_process()
    looks = 0
    look = OpenTopic.refresh
    with contextlib.ExitStack() as late:
        late.enter_context(seen_as("older", place))

        def refresh(handle: OpenTopic) -> TopicState:
            nonlocal looks
            looks += 1
            if looks == 4:
                late.close()
            return look(handle)

        monkeypatch.setattr(OpenTopic, "refresh", refresh)
        assert read(made, tasks) == OFFSETS
    assert looks == 4


@LOSS
@pytest.mark.parametrize("view", ["nothing", "empty", "another"])
def test_a_root_that_goes_while_a_task_reads(place: Path, there: Log, view: str, loss: str) -> None:
    """It saw the root and the first file; then the disk was gone, or another was there."""
    for _ in range(6):
        fill(there, "t", {0: 1}, 400_000)
    made = reader(place, loss)
    [task] = made.partitions()
    another_process()
    batches = made.read(task)
    seen = [row["offset"] for row in next(batches).to_pylist()]
    with seen_as(view, place), pytest.raises(StorageError, match="is not at|Another log than"):
        list(batches)
    assert seen == [0]
    assert read(made, [task]) == {("t", 0): [*range(6)]}


def test_a_file_that_is_lost_is_still_said_to_be(place: Path, there: Log) -> None:
    fill(there, "t", {0: 1}, 400_000)
    made = reader(place, "false")
    tasks = made.partitions()
    for file in place.glob("t/partition=0/*"):
        file.unlink()
    with pytest.raises(CorruptLogError, match="is not there, and the log still names it"):
        read(made, tasks)


@pytest.mark.parametrize("view", ["nothing", "empty", "another"])
@pytest.mark.parametrize("name", tables.TABLES)
def test_a_table_is_read_of_the_root_that_was_planned_with(
    place: Path, there: Log, name: str, view: str
) -> None:
    options = {"path": str(place), "table": name}
    made = tables.TableReader(options, tables.table_schema(options))
    [task] = made.partitions()
    assert len([*made.read(task)]) == (name == "topics")
    with seen_as(view, place), pytest.raises(StorageError, match=socket.gethostname()):
        list(made.read(task))


# --- the driver ----------------------------------------------------------------------------

NAMED = {"subscribe": "t"}, {"subscribepattern": "^t$"}, {"assign": '{"t":[0,1]}'}


@LOSS
@pytest.mark.parametrize("given", NAMED, ids=lambda given: next(iter(given)))
@pytest.mark.parametrize("view", ["nothing", "empty", "no topic"])
def test_a_query_that_starts_where_the_log_is_not_makes_nothing(
    place: Path, there: Log, view: str, given: dict[str, str], loss: str
) -> None:
    """As on a mount point whose disk is not mounted, with the checkpoint of its last run."""
    fill(there, "t", {0: 4, 1: 4})
    options = {"path": str(place), "group.id": "g", "startingoffsets": "earliest"}
    options |= {"failondataloss": loss, **given}
    query = OffsetLogStreamReader(options, source_schema(False))
    start = query.initialOffset()
    end = query.latestOffset(start, query.getDefaultReadLimit())
    query.commit(end)
    assert "_run" in vars(query)
    query._run.stop()
    before = there.offsets_table.look().version
    fill(there, "t", {0: 1})
    if view == "no topic":
        keep_copy(place)
        shutil.rmtree(place / "t")
    doors = (
        lambda made: made.initialOffset(),
        lambda made: made.prepareForTriggerAvailableNow(),
        lambda made: made.latestOffset(end, made.getDefaultReadLimit()),
        lambda made: made.commit(end),
        lambda made: made.partitions({}, end),
    )
    with contextlib.nullcontext() if view == "no topic" else seen_as(view, place):
        for number, door in enumerate(doors):
            another_process()
            if view == "no topic" and "subscribepattern" in given and number in (0, 1, 3):
                continue  # A pattern that finds nothing yet; the checkpoint is not known there.
            made = OffsetLogStreamReader(options, source_schema(False))
            with pytest.raises((InvalidRequestError, StorageError)) as failed:
                door(made)
            assert "failOnDataLoss" not in str(failed.value)
        if view != "no topic":
            for one in NAMED:
                another_process()
                with pytest.raises(InvalidRequestError, match="There is no"):
                    reader(place, loss, **one).partitions()
    if "subscribepattern" not in given:
        assert there.offsets_table.look().version == before


@LOSS
@pytest.mark.parametrize("view", ["nothing", "empty", "another"])
def test_a_root_that_goes_under_a_running_query(
    place: Path, there: Log, view: str, loss: str
) -> None:
    """Its last batch is not taken for the end, and the next run goes on behind it."""
    fill(there, "t", {0: 4, 1: 4})
    given = {"subscribe": "t", "startingOffsets": "earliest", "failOnDataLoss": loss}
    query = Engine(str(place), maxOffsetsPerTrigger=4, **given)
    assert at(query.batch()) == {("t", 0): [0, 1], ("t", 1): [0, 1]}
    with seen_as(view, place), pytest.raises(StorageError, match=socket.gethostname()):
        query.batch()
    assert at(query.batch()) == {("t", 0): [2, 3], ("t", 1): [2, 3]}
    assert query.batch() is None


@LOSS
def test_a_driver_that_sees_an_older_view_does_not_begin_again(
    place: Path, there: Log, loss: str
) -> None:
    there.create_topic("u")
    fill(there, "t", {0: 2, 1: 2})
    keep_copy(place)
    shutil.rmtree(place.with_name("older") / "u")
    fill(there, "t", {0: 2, 1: 2})
    fill(there, "u", {0: 1})
    there.topic("t").alter(partitions=3)
    fill(there, "t", {2: 1})
    given = {"startingOffsets": "earliest", "failOnDataLoss": loss}
    for which, told in (
        ({"subscribe": "t"}, r"t-\d was seen up to \d before, but the machine"),
        ({"assign": '{"t":[1]}'}, "sees the log only up to 2, at file://"),
        ({"assign": '{"t":[2]}'}, "sees no such partition, at file://"),
        ({"subscribe": "u"}, "There is no topic 'u'"),
        ({"subscribePattern": "^u$"}, "sees no such topic, at file://"),
    ):
        another_process()
        query = Engine(str(place), **which, **given)
        rows = query.batch()
        kept, end = query.checkpoint, query.checkpoint.wal[-1]
        with seen_as("older", place):
            another_process()
            again = query.restarted(**which, **given)
            with pytest.raises(OffsetLogError, match=told) as failed:
                again.plan()
            assert "failOnDataLoss" not in str(failed.value)
            # What was planned already is not made smaller either.
            planned = Checkpoint()
            planned.wal = [end]
            again = Engine(str(place), planned, **which, **given)
            again.plan()
            with pytest.raises(OffsetLogError, match=f"{told}|assign names partition 2"):
                again.ranges()
        another_process()
        assert kept.wal == [end]
        again = Engine(str(place), planned, **which, **given)
        again.plan()
        assert sorted(again.rows()) == sorted(rows or [])


@LOSS
def test_what_the_chain_says_is_gone_is_gone(place: Path, there: Log, loss: str) -> None:
    """A deletion and a moved log start, which are losses, and lost where that is accepted."""
    for partition in (0, 1):
        fill(there, "t", {partition: 3})
        fill(there, "t", {partition: 1})
    tasks = reader(place, loss).partitions()
    there.topic("t").delete_records({0: 3})
    for _ in range(2):
        there.maintain(grace_ms=0)
    made = reader(place, loss)
    another_process()
    if loss == "false":
        assert read(made, tasks) == {("t", 0): [3], ("t", 1): [0, 1, 2, 3]}
    else:
        with pytest.raises(InvalidRequestError, match="failOnDataLoss=false"):
            read(made, tasks)
    there.delete_topic("t")
    for _ in range(2):
        there.maintain(grace_ms=0)
    another_process()
    if loss == "false":
        assert read(made, tasks) == {}
    else:
        with pytest.raises(InvalidRequestError, match="failOnDataLoss=false"):
            read(made, tasks)


@LOSS
def test_a_group_beyond_an_older_view(place: Path, there: Log, tmp_path: Path, loss: str) -> None:
    """The offsets table lies elsewhere, and is as it should be."""
    fill(there, "t", {0: 2})
    keep_copy(place)
    fill(there, "t", {0: 2})
    table = str(tmp_path / "offsets")
    log = offsetlog.open(str(place), offsets_table=table)
    with log, log.consumer(group="g") as consumer:
        consumer.assign([("t", 0)])
        consumer.commit({("t", 0): 4})
    given = {"subscribe": "t", "startingOffsets": "group", "group__id": "g"}
    given |= {"offsets__table": table, "failOnDataLoss": loss}
    with seen_as("older", place):
        another_process()
        with pytest.raises(StorageError, match="the log only up to 2, at .* reset it"):
            Engine(str(place), **given).plan()


def test_looking_makes_nothing(tmp_path: Path) -> None:
    another_process()
    for table in tables.TABLES:
        options = {"path": str(tmp_path / "log"), "table": table}
        with pytest.raises(InvalidRequestError, match="There is no log"):
            tables.TableReader(options, tables.table_schema(options)).partitions()
    assert tree(tmp_path / "log") == set()
