"""What a scrape of the metrics asks of an object store: a request for each topic, whatever its
partitions and the groups that are behind in them.

The requests are counted at the HTTP level: of the first look of a process, which opens the topics,
and of those after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.counting import counted_store
from bench.figure import Case, Rig, Setting, at_most
from tests.servers.relay import Proxy

TOPICS = 4
PARTITIONS = 64
GROUPS = 8
SCRAPES = 5
ABOUT = f"{TOPICS} topics of {PARTITIONS} partitions, {GROUPS} groups behind in all of them"
FIGURES = (
    at_most("scrape_requests", TOPICS + 3, "requests", ABOUT),
    at_most("scrape_first_requests", 5 * TOPICS + 6, "requests", f"the first, {ABOUT}"),
)


class _Scrapes:
    def __init__(self, url: str, options: dict[str, Any], proxy: Proxy) -> None:
        self._url = url
        self._options = options
        self._proxy = proxy

    def ours(self) -> dict[str, float]:
        import offsetlog
        from offsetlog.metrics import exposition

        with offsetlog.open(self._url, **self._options) as log:
            with self._proxy.counted() as first:
                exposition(log)
            with self._proxy.counted() as later:
                for _ in range(SCRAPES):
                    text = exposition(log)
        behind = [line for line in text.splitlines() if line.startswith("kafka_consumergroup_lag{")]
        if len(behind) != TOPICS * PARTITIONS * GROUPS or any(x.endswith(" 0") for x in behind):
            raise RuntimeError("the scrape does not show what is there")
        return {
            "scrape_requests": len(later) / SCRAPES,
            "scrape_first_requests": float(len(first)),
        }

    def peer(self) -> dict[str, float]:
        return {}


def _fill(log: Any) -> None:
    from offsetlog.core.group.facts import OffsetAndMetadata
    from offsetlog.core.group.requests import CommitRequest

    topics = [f"t{number}" for number in range(TOPICS)]
    with log.producer() as producer:
        for topic in topics:
            log.create_topic(topic, partitions=PARTITIONS)
            for partition in range(PARTITIONS):
                producer.send(topic, value=b"x", partition=partition)
    start = {(topic, p): OffsetAndMetadata(0) for topic in topics for p in range(PARTITIONS)}
    log.offsets_table.accept(
        *(CommitRequest(f"g{number}", None, 0, 0, start) for number in range(GROUPS))
    )
    log.maintain()


@contextmanager
def _rig(setting: Setting) -> Iterator[Rig]:
    import offsetlog

    with counted_store() as (place, proxy):
        url = f"{place.url}/log"
        direct: dict[str, Any] = dict(place.options)
        with offsetlog.open(url, **direct) as log:
            _fill(log)
        yield _Scrapes(url, direct | {"endpoint_url": proxy.url}, proxy)


CASES = (Case("scrape", FIGURES, _rig, warmups=0),)
