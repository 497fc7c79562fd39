"""What a log keeps of its newest entries: one allowance for all topics, counted as memory."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

import offsetlog
from offsetlog.engine.append import record_batch
from offsetlog.engine.env import REAL, Limits
from offsetlog.engine.topic.recent_entries import ENTRY_WEIGHT, RecentEntries, weight_of
from offsetlog.format.entries import decode
from tests.engine.append.test_open_fates import batch, send
from tests.engine.scripted import topic


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_all_topics_share_one_allowance(tmp_path: Path) -> None:
    limit = 40 * ENTRY_WEIGHT
    with offsetlog.open(str(tmp_path)) as log:
        for name in ("a", "b", "c"):
            log.create_topic(name, partitions=1)
        with log.producer() as producer:
            for name in 30 * ("a", "b", "c"):
                producer.send(name, value=b"x").result()
    from offsetlog.client.log import Log
    from offsetlog.storage.open import open_store

    log = Log(open_store(str(tmp_path)), REAL._replace(limits=Limits(recent_bytes=limit)))
    for name in ("a", "b", "c"):
        assert log.topic(name).end_offsets() == {0: 30}
    recent = log._topics._recent
    assert limit - 2 * ENTRY_WEIGHT < recent.bytes <= limit
    log.close()


def test_the_newest_is_kept_however_large() -> None:
    _, handle = topic()
    send(handle, batch(b"x"), 1)
    stored = handle.chain.recent(1)
    assert stored is not None
    recent = RecentEntries(0).of_chain()
    recent.keep(1, stored)
    recent.keep(2, stored)
    assert recent.get(1) is None
    assert recent.get(2) is stored


def test_an_entry_weighs_what_it_takes_in_memory() -> None:
    """20,000 small appends took 125 MB of an allowance of 32 MB, when files were counted."""
    _, handle = topic()
    send(handle, batch(b"x"), 1)
    known = handle.chain.recent(1)
    assert known is not None
    kept = []
    gc.collect()
    before = resident()
    for _ in range(10_000):
        stored = decode(bytes(bytearray(known.data)), "an entry")
        stored.rows(0, 1, ("value",))
        kept.append(stored)
    assert resident() - before < 1.2 * sum(map(weight_of, kept))


def test_rows_that_an_entry_does_not_count_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two thousand entries of a few kilobytes could hold 64 MB each."""
    _, handle = topic()
    with monkeypatch.context() as patch:
        patch.setattr(record_batch, "row_bytes", lambda table: np.ones(len(table), np.int64))
        send(handle, batch(bytes(3_000_000)), 1)
    send(handle, batch(bytes(100_000)), 2)
    lying, honest = (handle.chain.recent(number) for number in (1, 2))
    assert lying is not None and honest is not None
    for stored, size, is_kept in ((lying, 3_000_000, False), (honest, 100_000, True)):
        again = decode(stored.data, "an entry")
        for _ in range(2):
            [value] = again.rows(0, 1, ("value",)).column("value").to_pylist()
            assert value == bytes(size)
        assert (again._table is not None) is is_kept
