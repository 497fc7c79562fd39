"""The registry: one module a family of figures, each with ``CASES``."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module

from bench.figure import Case

MODULES = (
    "append_local",
    "append_s3",
    "idle_poll",
    "scrape",
    "index",
    "contention_local",
    "contention_s3",
    "group_commit",
    "groups",
    "send",
    "arrow",
    "table",
    "spark_source",
    "spark_sink",
    "spark_s3",
    "spark_hand_over",
    "spark_turns",
    "spark_memory",
    "requests",
    "growth",
    "sizes",
    "upkeep",
    "waiting",
    "compaction",
    "stored_bytes",
    "spark_latency",
    "spark_batches",
    "spark_plan",
    "cost_month",
)


@lru_cache
def modules() -> dict[str, tuple[Case, ...]]:
    """The cases of each family."""
    return {name: import_module(f"bench.figures.{name}").CASES for name in MODULES}


def cases() -> tuple[Case, ...]:
    """All cases, in the order in which they run and are shown."""
    return tuple(case for family in modules().values() for case in family)


def figure_names() -> list[str]:
    """All figures, in order."""
    return [figure.name for case in cases() for figure in case.figures]


def select(only: Iterable[str] | None) -> list[Case]:
    """The cases of that name, or that measure a figure of that name; all when none is named."""
    if not only:
        return list(cases())
    names = set(only)
    return [
        case
        for case in cases()
        if case.name in names or names & {figure.name for figure in case.figures}
    ]
