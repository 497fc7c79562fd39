"""What must be the same in a log and in its copy, and a random life for a log that is copied."""

from __future__ import annotations

import random
from typing import Any

import offsetlog
from offsetlog.engine.upkeep.findings import status_of

TOPICS = ("a", "b", "c")
GROUPS = ("g", "h")


def contents(root: str, **options: Any) -> dict[str, Any]:
    """All records with their offsets, all groups with positions, generations and reset numbers."""
    with offsetlog.open(root, **options) as log:
        records = {}
        for name in log.topics():
            topic = log.topic(name)
            records[name] = topic.beginning_offsets(), topic.end_offsets()
            consumer = log.consumer(auto_offset_reset="earliest")
            consumer.assign([(name, partition) for partition in topic.end_offsets()])
            while polled := consumer.poll(0):
                for r in polled:
                    records[name, r.partition, r.offset] = r.key, r.value, r.timestamp, r.headers
        table = log.offsets_table.look()
        return {"records": records, "groups": dict(table.groups), "version": table.version}


def is_sound(root: str, **options: Any) -> None:
    with offsetlog.open(root, **options) as log:
        reports = log.verify()
        assert status_of(reports) == 0, [(r.topic, r.faults, r.caches) for r in reports]


def live(log: offsetlog.Log, rng: random.Random, steps: int = 6) -> None:
    """A little of everything that changes a log."""
    for _ in range(steps):
        name = rng.choice(TOPICS)
        if name not in log.topics():
            log.create_topic(name, partitions=rng.randint(1, 3))
        step = rng.random()
        if step < 0.5:
            with log.producer() as producer:
                for _ in range(rng.randint(1, 8)):
                    size = rng.choice((10, 10, 10, 300_000))
                    producer.send(name, rng.randbytes(size), key=rng.randbytes(1)).result()
        elif step < 0.7:
            with log.consumer(rng.choice(GROUPS), [name], auto_offset_reset="earliest") as consumer:
                consumer.poll(0.2)
                consumer.commit()
        elif step < 0.77:
            group = log.group(rng.choice(GROUPS))
            group.reset(name, to=rng.choice(("earliest", "latest")), dry_run=False)
        elif step < 0.9:
            log.maintain(grace_ms=rng.choice((0, 0, 86_400_000)))
        elif step < 0.95:
            log.open_topic(name).stored.publish()
        else:
            log.delete_topic(name)
