"""Samples as Prometheus' text.

Invariants:

1. One text is sound in both of Prometheus' formats, 0.0.4 and OpenMetrics 1.0: its end is marked,
   which the older one takes for a comment.
2. Text from outside stays within its quotes: what a label holds ends neither it nor its line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from offsetlog.metrics.families import Family, Samples, of_log

if TYPE_CHECKING:
    from offsetlog.client.log import Log

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(log: Log) -> str:
    """The metrics of a log as text, for a scrape."""
    return to_text(of_log(log.overview(), log.last_maintained_ms()))


def to_text(samples: Samples) -> str:
    """The text of these samples, family by family."""
    lines = []
    for family, its_samples in samples.items():
        lines.append(f"# HELP {family.name} {family.help}")
        lines.append(f"# TYPE {family.name} gauge")
        lines += [f"{_series(family, s.labels)} {s.value!r}" for s in its_samples]
    return "\n".join([*lines, "# EOF\n"])


def _series(family: Family, values: tuple[str, ...]) -> str:
    if not values:
        return family.name
    pairs = zip(family.labels, values, strict=True)
    return f"{family.name}{{{','.join(f'{name}={_quoted(value)}' for name, value in pairs)}}}"


def _quoted(value: str) -> str:
    plain = value.encode("utf-8", "replace").decode()
    escaped = plain.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return f'"{escaped}"'
