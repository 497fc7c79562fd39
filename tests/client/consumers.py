"""Consumers with a group, for the tests of them: what they read, and how they share."""

from __future__ import annotations

import contextlib
import time

from offsetlog import TopicExistsError


def fill(log, topic="orders", partitions=3, records=30):
    """``records`` records, dealt out to the partitions in turn."""
    with contextlib.suppress(TopicExistsError):
        log.create_topic(topic, partitions)
    with log.producer() as producer:
        for n in range(records):
            producer.send(topic, b"%d" % n, partition=n % partitions)


def drain(consumer, seconds=0.0):
    """All that is there now; with ``seconds`` it waits that long for the first."""
    out = []
    while batch := consumer.poll(seconds):
        out += batch
        seconds = 0.0
    return out


def settle(*workers, until, seconds=10.0):
    deadline = time.monotonic() + seconds
    out = {worker: [] for worker in workers}
    while not until():
        assert time.monotonic() < deadline, "the group did not settle"
        for worker in workers:
            out[worker] += worker.poll(0.005)
    return out


def places(consumer):
    return sorted(consumer.assignment())


def quiet(log, group="billing", **settings):
    return log.consumer(
        group, ["orders"], auto_offset_reset="earliest", enable_auto_commit=False, **settings
    )
