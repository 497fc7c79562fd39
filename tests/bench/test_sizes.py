"""Bytes stored for a record, in a short form: a codec or a column that grows is seen here."""

from __future__ import annotations

from pathlib import Path

import pytest

import offsetlog
from bench.workload import events, random_table, timed

ROWS = 40_000
MAKERS = {"random": lambda: timed(random_table(ROWS)), "events": lambda: events(ROWS)}
MOST = {"random": 114.5, "events": 26.5}


@pytest.mark.parametrize("kind", MOST)
def test_bytes_stored_for_a_record_do_not_grow(kind: str, tmp_path: Path) -> None:
    with offsetlog.open(str(tmp_path)) as log:
        log.create_topic("orders", partitions=8, config={"retention.ms": -1})
        with log.producer() as producer:
            producer.send_arrow("orders", MAKERS[kind]()).result()
    stored = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    assert stored / ROWS <= MOST[kind], stored / ROWS


def test_the_same_seed_makes_the_same_events() -> None:
    assert events(1_000, 3).equals(events(1_000, 3))
    assert not events(1_000, 3).equals(events(1_000, 4))
