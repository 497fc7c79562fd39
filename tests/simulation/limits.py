"""Limits so small that every mechanism is met in a history of some hundred steps."""

from __future__ import annotations

from contextlib import AbstractContextManager

from offsetlog import values
from offsetlog.core.topic import fold, senders
from offsetlog.core.topic.landing import LandingLimits
from offsetlog.core.topic.publish import IndexLimits
from offsetlog.engine.env import Limits
from offsetlog.engine.topic import chain
from offsetlog.format import names, snapshots
from tests.simulation.planting import Patch, patched

TINY = Limits(
    inline_bytes=200,
    row_group_records=3,
    recent_bytes=20_000,
    window=4,
    leaves_kept=2,
    many_senders=3,
    whole_bytes=1_500,
    plan_records=9,
    min_files=2,
    runs_per_entry=1,
    senders_kept=2,
    snapshots_kept=1,
    commit_retry_seconds=0.0,
    owner_session_ms=3_000,
    owner_heartbeat_ms=1_000,
    publishing=IndexLimits(leaf_extents=8, full_leaf=5, sorted_at_once=2, few_partitions=1),
    landing=LandingLimits(look_after=3, max_unknown=3),
)
FORMAT: tuple[Patch, ...] = (
    (names, "BUCKET_ENTRIES", 5),
    (chain, "BUCKET_ENTRIES", 5),
    (snapshots, "MAX_LEAF_EXTENTS", 8),
    (fold, "REPLACES_REMEMBERED", 1),
    (senders, "_LAYER_LIMITS", (1, 2)),
    (values, "_INTEGERS", {key: (-1, high) for key, (_, high) in values._INTEGERS.items()}),
)
"""What every process that reads a log must agree on, so none is given it."""


def tiny_format() -> AbstractContextManager[None]:
    """The stored format with smaller numbers."""
    return patched(FORMAT)
