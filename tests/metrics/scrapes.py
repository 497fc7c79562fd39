"""What a scrape shows, as the tests look at it: read back by Prometheus' own parsers."""

from __future__ import annotations

from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families as strictly
from prometheus_client.parser import text_string_to_metric_families as leniently

from offsetlog.core.group.facts import OffsetAndMetadata
from offsetlog.core.group.requests import CommitRequest

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: str) -> Series:
    """Name and labels -> value. Both formats must agree, and no series may come twice."""
    strict = _series(strictly(text))
    assert strict == _series(leniently(text))
    return strict


def _series(families: Any) -> Series:
    samples = [sample for family in families for sample in family.samples]
    series = {(s.name, tuple(sorted(s.labels.items()))): s.value for s in samples}
    assert len(series) == len(samples), "a series comes twice"
    return series


def value(series: Series, name: str, **labels: object) -> float | None:
    """Of one series; None where it is not there."""
    return series.get((name, tuple(sorted((k, str(v)) for k, v in labels.items()))))


def written(log: Any, topic: str, count: int, partition: int = 0) -> None:
    """Some records."""
    with log.producer() as producer:
        for n in range(count):
            producer.send(topic, value=b"v%d" % n, partition=partition)


def committed(log: Any, group: str, positions: dict[tuple[str, int], int]) -> None:
    """Positions of a group, wherever they are."""
    offsets = {partition: OffsetAndMetadata(at) for partition, at in positions.items()}
    log.offsets_table.accept(CommitRequest(group, None, 0, 0, offsets))
