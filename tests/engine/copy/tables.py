"""The Delta table of a copy, held against what a consumer of the copy reads, after each run."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

import offsetlog
from tests.engine.copy.sameness import is_sound

TOPIC = "d"
Row = tuple[int, int, bytes | None]
"""Partition, offset and value."""


class Seen(NamedTuple):
    """A copy and its table, after a run."""

    rows: frozenset[Row]
    """Of the table."""
    starts: dict[int, int]
    ends: dict[int, int]
    """Of the table."""


def look(target: Path, before: Seen | None, is_fresh: bool) -> Seen | None:
    """What a copy's table has now; ``is_fresh``: nothing was taken from its log since its source
    was maintained."""
    is_sound(str(target))
    with offsetlog.open(str(target)) as copy:
        topic = copy.topic(TOPIC)
        info, starts = topic.table(), topic.beginning_offsets()
        consumer = copy.consumer(auto_offset_reset="earliest")
        consumer.assign([(TOPIC, partition) for partition in starts])
        log: set[Row] = set()
        while polled := consumer.poll(0):
            log |= {(r.partition, r.offset, r.value) for r in polled}
    if info is None:
        return None
    query = QueryBuilder().register("t", DeltaTable(info.path))
    read = pa.table(query.execute('select "partition", "offset", value from t').read_all())
    rows = list(zip(*(column.to_pylist() for column in read.columns), strict=True))
    there = frozenset(rows)
    assert len(there) == len(rows), "the table has a record twice"
    due = {row for row in log if row[1] < info.end_offsets[row[0]]}
    assert due <= there, f"the table lacks {len(due - there)} of {len(due)} records of the log"
    assert not is_fresh or there == due, f"the table has {len(there - due)} others"
    if before is not None:
        back = {p: end for p, end in before.ends.items() if info.end_offsets[p] < end}
        assert not back, f"ends went back: {back} to {info.end_offsets}"
        lost = (before.rows & log) - there
        assert not lost, f"{len(lost)} records left the table that the log still has"
    return Seen(there, starts, info.end_offsets)


def history(rng: random.Random, folder: Path, rounds: int) -> None:
    """A random life of a topic with a table, and of its copy."""
    source, target = folder / "log", folder / "copy"
    config = {"table.format": "delta"}
    if rng.random() < 0.3:
        config |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    with offsetlog.open(str(source)) as log:
        log.create_topic(TOPIC, partitions=2, config=config)
        seen: Seen | None = None
        is_fresh = True
        for _ in range(rounds):
            for _ in range(rng.randint(1, 4)):
                step = rng.choice(("send", "send", "maintain", "delete", "erase", "send"))
                if step == "send":
                    with log.producer() as producer:
                        for _ in range(rng.choice((1, 30, 300))):
                            key = b"k%d" % rng.randrange(40)
                            producer.send(TOPIC, rng.randbytes(8), key=key)
                elif step == "maintain":
                    log.maintain(grace_ms=rng.choice((0, 0, 86_400_000)))
                    is_fresh = True
                elif step == "delete":
                    partition = rng.randrange(2)
                    start = log.topic(TOPIC).beginning_offsets()[partition]
                    end = log.topic(TOPIC).end_offsets()[partition]
                    before = min(end, start + rng.choice((1, 10, 100)))
                    log.topic(TOPIC).delete_records({partition: before})
                    is_fresh = False
                else:
                    log.topic(TOPIC).erase(keys=[b"k%d" % rng.randrange(40)])
                    is_fresh = False
            log.copy(str(target))
            seen = look(target, seen, is_fresh)
