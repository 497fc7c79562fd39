"""What tests of groups ask a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

GROUP = {"subscribe": "orders", "startingOffsets": "earliest", "group__id": "g"}


def until(condition: Callable[[], object], longest: float = 10.0) -> None:
    end = time.monotonic() + longest
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def committed(log: Any, group: str = "g") -> dict[tuple[str, int], int]:
    return {tuple(tp): n.offset for tp, n in group_of(log, group).positions.items()}


def group_of(log: Any, group: str = "g") -> Any:
    return log.offsets_table.look().group(group)


def commit_by_hand(log: Any, group: str) -> None:
    with log.consumer(group=group) as consumer:
        consumer.assign([("orders", 0)])
        consumer.commit({("orders", 0): 0})


def reset(log: Any, **given: Any) -> None:
    log.group("g").reset("orders", dry_run=False, **given)
