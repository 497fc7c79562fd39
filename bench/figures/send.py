"""``send`` one record at a time, a future each, acknowledged and fsynced.

The peers are confluent-kafka against a broker on this machine, idempotent and with acks=all:
once with one callback that notes each record's offset, the leanest thing that knows every
outcome, and once with a future each, as our own API gives. Kafka's ack is not fsynced; ours is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from bench.figure import Case, Figure, Rig, Setting
from bench.peers import confluent, kafka
from bench.workload import random_records

PARTITIONS = 8
FIGURES = (
    Figure("send_futures", "records/s", "confluent-kafka, a callback", 1.0, "higher"),
    Figure("send_futures_alike", "records/s", "confluent-kafka, a future each", 1.0, "higher"),
)


class _Sends:
    def __init__(self, log: Any, client: Any, count: int) -> None:
        self._log = log
        self._client = client
        self._count = count
        self._keys, self._values = random_records(count)

    def ours(self) -> dict[str, float]:
        futures: list[Any] = []
        keep = futures.append
        with self._log.producer() as producer:
            send = producer.send
            begin = perf_counter()
            for key, value in zip(self._keys, self._values, strict=True):
                keep(send("orders", value=value, key=key))
            producer.flush()
            for future in futures:
                future.result()
            rate = self._count / (perf_counter() - begin)
        return {"send_futures": rate, "send_futures_alike": rate}

    def peer(self) -> dict[str, float]:
        bare = confluent.send_with_callback(self._client, "orders", self._keys, self._values)
        alike = confluent.send_with_futures(self._client, "orders", self._keys, self._values)
        return {"send_futures": self._count / bare, "send_futures_alike": self._count / alike}


@contextmanager
def _rig(setting: Setting) -> Iterator[Rig]:
    import offsetlog

    with (
        kafka.running(setting.work, setting.cache) as broker,
        offsetlog.open(f"file://{setting.work}/log") as log,
    ):
        broker.create_topic("orders", PARTITIONS)
        log.create_topic("orders", partitions=PARTITIONS)
        client = confluent.producer(broker.address)
        try:
            yield _Sends(log, client, setting.pick(500_000, 2_000))
        finally:
            del client


CASES = (Case("send_futures", FIGURES, _rig),)
