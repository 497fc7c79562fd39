"""Limits so small that every mechanism is met in a history of some hundred steps."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from offsetlog import values
from offsetlog.core.topic import fold, landing, publish, rewrite
from offsetlog.core.topic import senders as apps
from offsetlog.engine.append import record_batch as prepared
from offsetlog.engine.topic import chain, reader, stored_state
from offsetlog.engine.upkeep import maintenance
from offsetlog.format import names, snapshots
from offsetlog.format import record_schema as rows

Patch = tuple[Any, str, Any]
"""(module or class, name, value)"""

TINY: tuple[Patch, ...] = (
    (prepared, "INLINE_BYTES", 90),
    (rows, "ROW_GROUP_RECORDS", 3),
    (names, "BUCKET_ENTRIES", 5),
    (chain, "BUCKET_ENTRIES", 5),
    (chain, "RECENT_BYTES", 2_500),
    (chain, "WINDOW", 4),
    (publish, "LEAF_EXTENTS", 8),
    (publish, "FULL_LEAF", 5),
    (publish, "SORTED_AT_ONCE", 2),
    (publish, "FEW_PARTITIONS", 1),
    (snapshots, "MAX_LEAF_EXTENTS", 8),
    (snapshots, "MANY_SENDERS", 3),
    (apps, "_LAYER_LIMITS", (1, 2)),
    (fold, "REPLACES_REMEMBERED", 1),
    (landing, "LOOK_AFTER", 3),
    (landing, "MAX_UNKNOWN", 3),
    (stored_state, "LEAVES_KEPT", 2),
    (reader, "WHOLE_BYTES", 1_500),
    (reader, "PLAN_RECORDS", 9),
    (maintenance, "RUNS_PER_ENTRY", 2),
    (maintenance, "SENDERS_KEPT", 2),
    (maintenance, "SNAPSHOTS_KEPT", 1),
    (values, "_INTEGERS", {key: (-1, high) for key, (_, high) in values._INTEGERS.items()}),
    (maintenance, "plan_rewrites", functools.partial(rewrite.plan_rewrites, min_files=3)),
)


@contextmanager
def patched(patches: Iterable[Patch]) -> Iterator[None]:
    """Other values for names of modules and classes, for a while."""
    patches = tuple(patches)
    before = [(where, name, where.__dict__[name]) for where, name, _ in patches]
    try:
        for where, name, value in patches:
            setattr(where, name, value)
        yield
    finally:
        for where, name, value in before:
            setattr(where, name, value)


@contextmanager
def tiny_limits() -> Iterator[None]:
    with patched(TINY):
        yield


@contextmanager
def no_pauses() -> Iterator[None]:
    """A query does not wait before it tries a commit again, and prints nothing."""
    from pyspark_offsetlog.source import group_owner as ownership

    patches: tuple[Patch, ...] = (
        (ownership, "RETRY", 0.0),
        (ownership, "warn", lambda text: None),
    )
    with patched(patches):
        yield
