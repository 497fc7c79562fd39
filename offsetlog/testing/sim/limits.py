"""Limits so small that every mechanism is met in a history of some hundred steps."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...client import chain, maintenance, reader, stored_state, writer
from ...format import names, rows, snapshots
from ...log import apps, fold, index, landing, rewrite

TINY: tuple[tuple[Any, str, Any], ...] = (
    (writer, "INLINE_BYTES", 90),
    (rows, "ROW_GROUP_RECORDS", 3),
    (names, "BUCKET_ENTRIES", 5),
    (chain, "BUCKET_ENTRIES", 5),
    (chain, "RECENT_BYTES", 2_500),
    (chain, "WINDOW", 4),
    (index, "LEAF_EXTENTS", 8),
    (index, "FULL_LEAF", 5),
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
    (maintenance, "plan_rewrites", functools.partial(rewrite.plan_rewrites, min_files=3)),
)


@contextmanager
def tiny_limits() -> Iterator[None]:
    before = [(module, name, getattr(module, name)) for module, name, _ in TINY]
    try:
        for module, name, value in TINY:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
