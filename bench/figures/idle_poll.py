"""What a consumer that waits asks of an object store: one request a look, whatever it waits for.

The requests are counted at the HTTP level, at 1 and at 1,000 partitions. The look that finds a
small new entry has its records with that same request.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.counting import counted_store
from bench.figure import Case, Rig, Setting, at_most
from tests.servers.relay import Proxy

LOOKS = 10
FIGURES = (
    at_most("idle_poll_requests", 1, "requests", "at 1 partition"),
    at_most("idle_poll_requests_1000", 1, "requests", "at 1,000 partitions"),
    at_most("new_entry_poll_requests", 1, "requests", "for the look that brings new records"),
    at_most("assign_requests_1000", 8, "requests", "to assign 1,000 partitions and begin"),
)


class _Looks:
    def __init__(self, log: Any, writer: Any, proxy: Proxy) -> None:
        self._log = log
        self._writer = writer
        self._proxy = proxy

    def ours(self) -> dict[str, float]:
        return {
            "assign_requests_1000": self._begin("many", 1000),
            "idle_poll_requests": self._idle("one", 1),
            "idle_poll_requests_1000": self._idle("many", 1000),
            "new_entry_poll_requests": self._new_entry("many", 1000),
        }

    def _begin(self, topic: str, partitions: int) -> float:
        with self._proxy.counted() as asked, self._log.consumer() as consumer:
            consumer.assign([(topic, number) for number in range(partitions)])
            consumer.seek_to_beginning()
            consumer.poll(timeout=0)
        return len(asked)

    def _caught_up(self, topic: str, partitions: int) -> Any:
        consumer = self._log.consumer(auto_offset_reset="earliest")
        consumer.assign([(topic, number) for number in range(partitions)])
        while consumer.poll(timeout=0.2):
            pass
        return consumer

    def _idle(self, topic: str, partitions: int) -> float:
        with self._caught_up(topic, partitions) as consumer, self._proxy.counted() as asked:
            for _ in range(LOOKS):
                if consumer.poll(timeout=0):
                    raise RuntimeError("the topic is not idle")
        return len(asked) / LOOKS

    def _new_entry(self, topic: str, partitions: int) -> float:
        with (
            self._caught_up(topic, partitions) as consumer,
            self._writer.producer(linger_ms=0) as producer,
        ):
            asked_for = 0
            for _ in range(LOOKS):
                producer.send(topic, value=b"new").result()
                with self._proxy.counted() as asked:
                    if len(consumer.poll(timeout=0)) != 1:
                        raise RuntimeError("the new record did not come with the first look")
                asked_for += len(asked)
                consumer.poll(timeout=0)  # idle again: who finds much asks for more at once
        return asked_for / LOOKS

    def peer(self) -> dict[str, float]:
        return {}


@contextmanager
def _rig(setting: Setting) -> Iterator[Rig]:
    import offsetlog

    with counted_store() as (place, proxy):
        url = f"{place.url}/log"
        direct: dict[str, Any] = dict(place.options)
        relayed = direct | {"endpoint_url": proxy.url}
        with (
            offsetlog.open(url, **direct) as writer,
            offsetlog.open(url, **relayed) as reader,
        ):
            writer.create_topic("one", partitions=1)
            writer.create_topic("many", partitions=1000)
            with writer.producer() as producer:
                for topic in ("one", "many"):
                    producer.send(topic, value=b"first").result()
            yield _Looks(reader, writer, proxy)


CASES = (Case("idle_poll", FIGURES, _rig, warmups=0),)
