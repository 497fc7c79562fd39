"""Tasks and a driver that do not see the root alike, when they write; no Spark runs here."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import offsetlog
from offsetlog.client.log import Log
from offsetlog.engine.root import Root
from offsetlog.errors import InvalidRequestError, OffsetLogError, StorageError
from pyspark_offsetlog.sink import task as sink_task
from pyspark_offsetlog.sink.writers import BatchWriter
from tests.spark_plugin.unit.sink_tools import batch, by_column, stream, values
from tests.spark_plugin.unit.views import another_process, keep_copy, seen_as, tree

WRITERS = {"batch": batch, "stream": stream, "by column": by_column}
ELSEWHERE = pytest.mark.parametrize("view", ["nothing", "empty", "another"])


@pytest.fixture(autouse=True)
def in_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even one row is few."""
    monkeypatch.setattr(sink_task, "MESSAGE_BYTES", 0)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Of a log with a topic and a record."""
    another_process()
    place = tmp_path / "log"
    with offsetlog.open(str(place)) as log:
        log.create_topic("t", partitions=4)
        with log.producer() as producer:
            producer.send("t", b"old", partition=0)
    keep_copy(place)
    return place


@pytest.fixture
def there(place: Path) -> Iterator[Log]:
    """The log as its users see it."""
    with offsetlog.open(str(place)) as log:
        yield log


def commit(made: Any, messages: list[Any], number: int = 0) -> None:
    another_process()
    if isinstance(made, BatchWriter):
        made.commit(messages)
    else:
        made.commit(messages, number)


@ELSEWHERE
@pytest.mark.parametrize("used_before", [False, True], ids=["new process", "used before"])
@pytest.mark.parametrize("kind", WRITERS)
def test_a_task_that_does_not_see_the_root_fails_and_writes_nothing(
    place: Path, there: Log, task: Any, view: str, kind: str, used_before: bool
) -> None:
    made = WRITERS[kind](path=str(place))
    another_process()
    if used_before:
        task(made, ["of an attempt that was lost"], partition=0)
    with seen_as(view, place), pytest.raises(StorageError) as failed:
        task(made, ["a"], partition=0)
    for told in (socket.gethostname(), str(place), there.root_id):
        assert told in failed.value.message
    commit(made, [task(made, ["a"], partition=0)])
    assert values(there) == ["old", "a"]
    [report] = there.verify("t")
    assert report.faults == ()


@ELSEWHERE
def test_a_root_that_goes_after_a_task_saw_it(
    place: Path, task: Any, view: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the writing: the disk is known by its open folder, not by its path."""
    made = batch(path=str(place))
    another_process()
    with seen_as(view, place), monkeypatch.context() as patched:
        patched.setattr(Root, "check", lambda root: None)
        with pytest.raises(StorageError, match=socket.gethostname()):
            task(made, ["a"], partition=0)


def test_the_disk_comes_back_while_a_process_lives(place: Path, there: Log, task: Any) -> None:
    """As a remounted disk, whose folders are not those that were opened before."""
    made = batch(path=str(place))
    task(made, ["of an attempt that was lost"], partition=0)
    moved = place.with_name("moved")
    place.rename(moved)
    shutil.copytree(moved, place)
    message = task(made, ["a"], partition=0)
    made.commit([message])
    with offsetlog.open(str(place)) as log:
        assert values(log) == ["old", "a"]


@pytest.mark.parametrize("view", ["nothing", "empty", "another", "older"])
def test_few_rows_travel_in_the_message_and_need_no_root(
    place: Path, there: Log, task: Any, view: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_task, "MESSAGE_BYTES", 1 << 18)
    made = batch(path=str(place))
    another_process()
    with seen_as(view, place):
        message = task(made, ["a"], partition=0)
    commit(made, [message])
    assert values(there) == ["old", "a"]


@ELSEWHERE
def test_a_driver_that_does_not_see_the_root_appends_nothing(
    place: Path, there: Log, task: Any, view: str
) -> None:
    for limit in (0, 1 << 18):
        made = batch(path=str(place))
        message = task(made, ["a"], partition=0)
        with seen_as(view, place):
            for used_before in (False, True):
                with pytest.raises(StorageError, match=socket.gethostname()):
                    made.commit([message]) if used_before else commit(made, [message])
            with pytest.raises(InvalidRequestError if view != "another" else AssertionError):
                batch(path=str(place))
                raise AssertionError("another log can be written to")
        assert values(there) == ["old"], limit


@pytest.mark.parametrize("kind", WRITERS)
def test_segments_in_a_copy_of_the_root_are_not_named(
    place: Path, there: Log, task: Any, kind: str
) -> None:
    """The copy has the root's id: only looking for the segments tells."""
    made = WRITERS[kind](path=str(place))
    seen = task(made, ["a"], 1, partition=1)
    another_process()
    with seen_as("older", place):
        message = task(made, ["b"], 0, partition=0)
    before = there.open_topic("t").refresh().tip
    with pytest.raises(StorageError, match=r"Of 2 segments .* 1 are not there") as failed:
        commit(made, [message, seen])
    assert socket.gethostname() in str(failed.value)
    assert "t/partition=0/" in str(failed.value) and not failed.value.may_have_landed
    assert there.open_topic("t").refresh().tip == before
    commit(made, [task(made, ["b"], 0, partition=0), seen])
    assert values(there) == ["old", "b", "a"]


@pytest.mark.parametrize("limit", [0, 1 << 18], ids=["many", "few"])
def test_a_driver_that_sees_an_older_copy_appends_nothing_to_it(
    place: Path, there: Log, task: Any, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_task, "MESSAGE_BYTES", limit)
    with there.producer() as producer:
        producer.send("t", b"new", partition=0)
    made = batch(path=str(place))
    message = task(made, ["a"], partition=0)
    before = tree(place.with_name("older"))
    with seen_as("older", place):
        with pytest.raises(StorageError, match=f"{socket.gethostname()} sees it only up to 2, at"):
            commit(made, [message])
        assert tree(place) == before
    commit(made, [message])
    assert values(there) == ["old", "new", "a"]


def test_only_planning_makes_a_root(tmp_path: Path, task: Any) -> None:
    another_process()
    place = tmp_path / "later"
    made = by_column(path=str(place), createtopicpartitions="2")
    assert tree(place) == {".", "_offsetlog.json"}
    another_process()
    place.rename(tmp_path / "away")
    with pytest.raises(OffsetLogError, match=socket.gethostname()):
        task(made, ["a"], topic="new", partition=0)
    assert not place.exists()
    (tmp_path / "away").rename(place)
    commit(made, [task(made, ["a"], topic="new", partition=0)])
    with offsetlog.open(str(place)) as log:
        assert values(log, "new") == ["a"]


def test_a_root_that_was_made_anew_is_planned_with_as_it_is(place: Path, task: Any) -> None:
    """A process that plans is used again; what it knew of the root before says nothing now."""
    old = batch(path=str(place))
    late = task(old, ["late"], partition=0)
    shutil.rmtree(place)
    with offsetlog.open(str(place)) as log:
        log.create_topic("t", partitions=1)
        made = batch(path=str(place))
        made.commit([task(made, ["a"], partition=0)])
        with pytest.raises(StorageError, match="Another log than"):
            old.commit([late])
        with pytest.raises(StorageError, match="Another log than"):
            task(old, ["late"], partition=0)
        assert values(log) == ["a"]
