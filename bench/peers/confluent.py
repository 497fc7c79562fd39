"""What a user of ``confluent-kafka`` types, at settings that make it fast.

1. Every record's outcome is known to the caller: a future each, or a callback each.
2. ``acks=all`` and ``enable.idempotence``, and the partitioner of Kafka's Java client.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from time import perf_counter
from typing import Any

FAST = {
    "acks": "all",
    "enable.idempotence": True,
    "partitioner": "murmur2_random",
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 1_048_576,
    "log_level": 0,
}
POLL_EVERY = 1_000
"""Records between looks at the answers: looking after each one costs the peer a third."""


def producer(address: str, **more: object) -> Any:
    """A producer that retries without making duplicates."""
    from confluent_kafka import Producer

    return Producer({"bootstrap.servers": address, **FAST, **more})


def send_with_futures(
    client: Any, topic: str, keys: Sequence[bytes], values: Sequence[bytes]
) -> float:
    """Seconds until every record's future holds its offset."""
    futures: list[Future[int]] = []

    def sent(future: Future[int]) -> Any:
        def delivered(error: Any, message: Any) -> None:
            if error is None:
                future.set_result(message.offset())
            else:
                future.set_exception(RuntimeError(str(error)))

        return delivered

    begin = perf_counter()
    for number, (key, value) in enumerate(zip(keys, values, strict=True)):
        future: Future[int] = Future()
        _produce(client, topic, key, value, sent(future), number)
        futures.append(future)
    client.flush()
    for future in futures:
        future.result(30)
    return perf_counter() - begin


def send_with_callback(
    client: Any, topic: str, keys: Sequence[bytes], values: Sequence[bytes]
) -> float:
    """Seconds until one shared callback has seen every record's outcome: the leanest way."""
    offsets: list[int] = []
    keep = offsets.append

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            keep(message.offset())

    begin = perf_counter()
    for number, (key, value) in enumerate(zip(keys, values, strict=True)):
        _produce(client, topic, key, value, delivered, number)
    client.flush()
    seconds = perf_counter() - begin
    if len(offsets) != len(values):
        raise RuntimeError(f"{len(values) - len(offsets)} records were not delivered")
    return seconds


def _produce(
    client: Any, topic: str, key: bytes, value: bytes, delivered: Any, number: int
) -> None:
    while True:
        try:
            client.produce(topic, value, key, on_delivery=delivered)
            break
        except BufferError:
            client.poll(0.01)
    if number % POLL_EVERY == 0:
        client.poll(0)


def consume_all(address: str, topic: str, partitions: int, records: int) -> float:
    """Seconds to take records as Python objects, values and offsets included."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.min.bytes": 1,
            "fetch.message.max.bytes": 10_000_000,
            "queued.max.messages.kbytes": 1_000_000,
        }
    )
    begin = perf_counter()
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
    seen = 0
    size = 0
    try:
        while seen < records:
            for message in consumer.consume(10_000, 10.0):
                if message.error():
                    raise RuntimeError(str(message.error()))
                size += len(message.value() or b"") + (message.offset() == -1)
                seen += 1
        return perf_counter() - begin
    finally:
        consumer.close()
