"""The threads of a process's heartbeats: who starts them, and when they end."""

from __future__ import annotations

import pytest

from offsetlog.client.log import Log
from offsetlog.engine.env import REAL
from offsetlog.errors import StorageError
from offsetlog.storage import open_store


def test_heartbeats_take_their_threads_from_the_environment_and_closing_waits_for_them(tmp_path):
    started = []

    def spawn(work, name):
        started.append(name)
        REAL.spawn(work, name)

    with Log(open_store(f"memory://{tmp_path.name}"), REAL._replace(spawn=spawn)) as log:
        log.create_topic("orders")
        with log.consumer("billing", ["orders"]), log.consumer("audit", ["orders"]):
            assert started == ["offsetlog-heartbeats", "offsetlog-watch"]
            assert log.heartbeats._running == {"heartbeats", "watch"}
    assert not log.heartbeats._running


def test_a_thread_that_cannot_be_started_is_an_error_of_one_line_and_the_next_join_starts_it(
    tmp_path,
):
    failures = [RuntimeError("can't start new thread")]

    def spawn(work, name):
        if failures:
            raise failures.pop()
        REAL.spawn(work, name)

    with Log(open_store(f"memory://{tmp_path.name}"), REAL._replace(spawn=spawn)) as log:
        log.create_topic("orders")
        with pytest.raises(StorageError, match=r"can't be started: can't start new thread\."):
            log.consumer("billing", ["orders"])
        with log.consumer("audit", ["orders"]):
            assert log.heartbeats._running == {"heartbeats", "watch"}
