"""A query that is behind by many entries: one micro-batch takes what the limits allow."""

from __future__ import annotations

import offsetlog
from tests.spark_plugin.unit.engine import Engine, fill, fresh_root


def _grown(root: str, entries: int) -> None:
    with offsetlog.open(root) as log:
        for _ in range(entries):
            fill(log, "orders", {0: 1})


def test_a_batch_takes_all_entries_that_came_since_the_last() -> None:
    root = fresh_root()
    with offsetlog.open(root) as log:
        log.create_topic("orders", partitions=1)
    query = Engine(root, subscribe="orders", startingOffsets="earliest", pollIntervalMs=0)
    assert not query.batch()
    for entries in (20, 1, 3):
        _grown(root, entries)
        assert len(query.batch() or []) == entries
        assert not query.batch()


def test_a_limit_is_used_to_the_full() -> None:
    root = fresh_root()
    with offsetlog.open(root) as log:
        log.create_topic("orders", partitions=1)
    _grown(root, 2)
    query = Engine(
        root, subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger=5,
        pollIntervalMs=0,
    )  # fmt: skip
    assert len(query.batch() or []) == 2
    _grown(root, 12)
    assert [len(query.batch() or []) for _ in range(3)] == [5, 5, 2]
