"""What the writer of the offsets table does about conflicts and lost answers, and says of them."""

from __future__ import annotations

import logging

import pytest

from offsetlog.client.log import Log
from offsetlog.core.group.facts import OffsetAndMetadata
from offsetlog.core.group.requests import CommitRequest
from offsetlog.engine.env import REAL
from offsetlog.storage import open_store
from offsetlog.storage.store import Unknown

ENV = REAL._replace(sleep=lambda seconds: None)


@pytest.fixture
def url(tmp_path):
    with Log(open_store(f"memory://{tmp_path.name}"), ENV) as log:
        log.create_topic("orders")
    return f"memory://{tmp_path.name}"


def commit(offset):
    return CommitRequest("billing", None, 0, 0, {("orders", 0): OffsetAndMetadata(offset)})


def committed(log):
    return log.group("billing").committed()["orders", 0].offset


def test_a_conflict_is_decided_again_and_logged(url, caplog):
    caplog.set_level(logging.DEBUG, "offsetlog.engine.group.offsets_table")
    with Log(open_store(url), ENV) as one, Log(open_store(url), ENV) as two:
        one.offsets_table.accept(commit(1))
        two.offsets_table.accept(commit(2))
        assert not caplog.records
        one.offsets_table.accept(commit(3))
        assert committed(two) == 3
    [record] = caplog.records
    assert (record.levelname, "is another's" in record.message) == ("DEBUG", True)


@pytest.mark.parametrize("is_there", [False, True])
def test_an_append_without_an_answer_is_made_again_and_logged(url, caplog, is_there):
    with Log(open_store(url), ENV) as log:
        log.offsets_table.accept(commit(1))
        version = log.offsets_table.table.version
        append, answers = log.offsets_table.port.append, []

        def lost_once(facts, version):
            if answers:
                return append(facts, version)
            answers.append(append(facts, version) if is_there else None)
            return Unknown("the connection was reset")

        log.offsets_table.port.append = lost_once
        log.offsets_table.accept(commit(2))
        assert (committed(log), log.offsets_table.look().version) == (2, version + 1)
    [record] = caplog.records
    assert (record.levelname, "the connection was reset" in record.message) == ("WARNING", True)


def test_a_look_that_finds_nothing_new_gives_the_same_table(url):
    """So a member that acted on it has nothing to do again."""
    with Log(open_store(url), ENV) as log, Log(open_store(url), ENV) as other:
        log.offsets_table.accept(commit(1))
        table = log.offsets_table.look()
        assert log.offsets_table.look() is table
        other.offsets_table.accept(commit(2))
        assert log.offsets_table.look().version == table.version + 1
