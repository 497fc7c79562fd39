"""What tests of groups ask a log."""

from __future__ import annotations

from typing import Any

GROUP = {"subscribe": "orders", "startingOffsets": "earliest", "group__id": "g"}


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
