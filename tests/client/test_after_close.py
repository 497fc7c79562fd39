"""After ``log.close()`` nothing that the log made works on, and its consumers have left."""

from __future__ import annotations

import gc
import inspect
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import offsetlog
from offsetlog.core.group.reset import ToEarliest
from offsetlog.errors import InvalidRequestError
from tests.waiting import until

pytestmark = pytest.mark.root_in("local", "memory")

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "erase": ([b"key"],),
    "delete_records": ({0: 1},),
    "offsets_for_times": ({0: 0},),
    "forget_app_ids": ("a",),
    "alter": (2,),
}
GROUPS: dict[str, tuple[Any, ...]] = {
    "reset_topics": (ToEarliest(), [("orders", None)]),
    "remove_members": ("somebody",),
    "delete_offsets": ("orders",),
}
WITHOUT_THE_LOG = {"close", "pause", "resume", "paused", "assignment", "subscription", "flush"}
"""What is true of the object itself, or does nothing."""


def methods(thing: object) -> list[str]:
    found = inspect.getmembers(type(thing), inspect.isfunction)
    return [name for name, _ in found if not name.startswith("_") and name not in WITHOUT_THE_LOG]


def refuses(call: Callable[[], object]) -> bool:
    try:
        call()
    except InvalidRequestError as error:
        return error.message == "The log is closed."
    return False


def test_a_topic_refuses_all(root: Path | str) -> None:
    with offsetlog.open(str(root)) as log:
        topic = log.create_topic("orders")
        log.topic("orders").end_offsets()
    worked = [
        n for n in methods(topic) if not refuses(lambda: getattr(topic, n)(*ARGUMENTS.get(n, ())))
    ]
    assert worked == [] and refuses(lambda: topic.partitions)
    assert repr(topic) == "Topic('orders')" and topic.name == "orders"


def test_a_group_a_consumer_and_the_log_refuse_all(root: Path | str) -> None:
    with offsetlog.open(str(root)) as log:
        log.create_topic("orders")
        group = log.group("g")
        consumer = log.consumer(topics=["orders"], auto_offset_reset="earliest")
        consumer.poll()
    worked = [
        n for n in methods(group) if not refuses(lambda: getattr(group, n)(*GROUPS.get(n, ())))
    ]
    assert worked == ["reset"]  # It says first that it was not told where to.
    assert refuses(lambda: group.reset("orders", to="earliest"))
    assert refuses(consumer.poll)
    own = {"check_open", "keep_to_root"}
    calls = {"create_topic": ("t",), "delete_topic": ("t",), "topic": ("t",), "group": ("g",),
             "purge_plan": ("t",), "open_topic": ("t",), "group_commit": ("t",),
             "copy": (f"{root}-copy",)}  # fmt: skip
    worked = [
        n
        for n in methods(log)
        if n not in own and not refuses(lambda: getattr(log, n)(*calls.get(n, ())))
    ]
    assert worked == []


def members(log: Any) -> set[str]:
    return {member.member for member in log.group("g").describe().members}


def test_closing_the_log_lets_its_consumers_commit_and_leave(root: Path | str) -> None:
    with offsetlog.open(str(root)) as other:
        other.create_topic("orders")
        with other.producer() as producer:
            producer.send("orders", b"1")
        log = offsetlog.open(str(root))
        consumer = log.consumer("g", ["orders"], auto_offset_reset="earliest")
        assert [record.value for record in consumer.poll()] == [b"1"]
        assert members(other) == {consumer.member}
        log.close()
        assert members(other) == set()
        assert other.group("g").lag()[("orders", 0)] == 0
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            consumer.close()


def test_a_block_that_fails_commits_nothing_and_leaves(root: Path | str) -> None:
    with offsetlog.open(str(root)) as other:
        other.create_topic("orders")
        with other.producer() as producer:
            producer.send("orders", b"1")
        with pytest.raises(ZeroDivisionError), offsetlog.open(str(root)) as log:
            consumer = log.consumer("g", ["orders"], auto_offset_reset="earliest")
            assert len(consumer.poll()) == 1
            raise ZeroDivisionError
        assert members(other) == set()
        assert other.group("g").committed() == {}


def test_one_that_a_thread_is_using_leaves_too(root: Path | str) -> None:
    ended: list[Exception] = []
    with offsetlog.open(str(root)) as other:
        other.create_topic("orders")
        log = offsetlog.open(str(root))
        consumer = log.consumer("g", ["orders"])

        def work() -> None:
            try:
                consumer.poll(timeout=60)
            except InvalidRequestError as error:
                ended.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        until(lambda: consumer._users)
        log.close()
        thread.join(30)
        assert members(other) == set() and len(ended) == 1


def test_one_that_python_collects_leaves(root: Path | str) -> None:
    with offsetlog.open(str(root)) as log:
        log.create_topic("orders", 2)
        kept = log.consumer("g", ["orders"])
        lost = log.consumer("g", ["orders"])
        while len(kept.assignment()) != 1 or len(lost.assignment()) != 1:
            kept.poll()
            lost.poll()
        name = lost.member
        del lost
        gc.collect()
        until(lambda: members(log) == {kept.member})
        until(lambda: kept.poll() == [] and len(kept.assignment()) == 2)
        until(lambda: name not in log.heartbeats._hearts)
        until(lambda: set(log.offsets_table.port.list_beats()) == {kept.member})
