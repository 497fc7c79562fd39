"""Memory of a round is bounded by a setting, however many appends wait: entries count, and not
only their bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from offsetlog.client.log import Log
from offsetlog.core.topic.rewrite import FILE_WEIGHT, RECORD_WEIGHT
from offsetlog.engine.topic import reader
from offsetlog.engine.topic.reader import TABLES_JOINED, InlineRows
from offsetlog.engine.upkeep.maintenance import COPIES, Maintenance
from offsetlog.errors import InvalidRequestError
from offsetlog.storage.memory import MemoryStore
from tests.engine.scripted import fresh_root
from tests.engine.upkeep.test_compaction import read

MIB = 1024 * 1024
WEIGHT = FILE_WEIGHT + RECORD_WEIGHT + 20
"""Of an append of one record."""
APPENDS = 3 * TABLES_JOINED


@pytest.fixture
def log() -> Iterator[Log]:
    with Log(MemoryStore(fresh_root())) as log:
        log.create_topic("t", config={"compression.type": "none"})
        yield log


def send(log: Log, count: int, size: int = 0) -> list[bytes]:
    sent = [b"value %d" % number + b"x" * size for number in range(count)]
    with log.producer(linger_ms=0) as producer:
        for value in sent:
            producer.send("t", value).result()
    return sent


def values(log: Log) -> list[bytes]:
    return [value for _, _, value in read(log)[0]]


def test_rows_of_many_entries_are_few_tables(log: Log) -> None:
    """A table took 10 KiB for each entry, whatever that held."""
    given: list[int] = []

    class Counted(InlineRows):
        def __init__(self, tables: list[Any]) -> None:
            given.append(len(tables))
            super().__init__(tables)

    sent = send(log, APPENDS)
    with mock.patch.object(reader, "InlineRows", Counted):
        assert log.maintain("t")[0].rewritten_files == APPENDS
    assert max(given) <= TABLES_JOINED + log.env.limits.window
    assert values(log) == sent


def test_entries_count_and_not_only_their_bytes(log: Log) -> None:
    """At once are read as many as the setting lets, and all of them in the end."""
    sent = send(log, APPENDS)
    most = 100 * WEIGHT
    maintenance = Maintenance(log.open_topic("t"), memory_bytes=COPIES * most)
    at_once: list[int] = []
    whole = maintenance._topic.reader.inline_rows

    def inline_rows(extents: Any) -> Any:
        at_once.append(len(extents))
        return whole(extents)

    with mock.patch.object(maintenance._topic.reader, "inline_rows", inline_rows):
        assert maintenance.run().rewritten_files >= APPENDS
    assert 50 < max(at_once) <= 110 and sum(at_once) == APPENDS
    assert values(log) == sent


def test_so_do_files_that_are_planned_for(log: Log) -> None:
    """Of those that lie in the index: a part is planned for, and rewritten, before the next."""
    sent = send(log, APPENDS)
    log.open_topic("t").stored.publish()
    planned: list[int] = []
    maintenance = Maintenance(log.open_topic("t"), memory_bytes=COPIES * 100 * WEIGHT)
    whole = maintenance._rewrite_all

    def rewrite_all(state: Any, plans: Any) -> Any:
        planned.append(sum(len(plan.extents) for plan in plans))
        return whole(state, plans)

    with mock.patch.object(maintenance, "_rewrite_all", rewrite_all):
        maintenance.run()
    assert values(log) == sent and len(planned) > 1


def test_no_run_is_larger_than_the_setting_lets(log: Log) -> None:
    sent = send(log, 64, size=100 * 1024)
    assert log.maintain("t", memory_bytes=4 * MIB)[0].new_segments >= 6
    assert values(log) == sent


def test_a_setting_that_can_hold_nothing_is_refused(log: Log) -> None:
    with pytest.raises(InvalidRequestError, match="memory_bytes"):
        log.maintain("t", memory_bytes=1000)
