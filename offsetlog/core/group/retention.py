"""When a group's positions expire.

Rules of this module:

1. Only a group without members can expire, and only so long after the last thing that any
   member or administrator did. A read does not count.
2. The time now is the storage's, as for the retention of records. It is compared with the time
   that a fact's author gave it, as a record's time is its producer's. No other promise rests on
   a clock. A time in the future counts as now.
3. Whether a group expires is decided again when the fact is written: a commit in between
   keeps it.
"""

from __future__ import annotations

from offsetlog.core.group.fold import GroupDraft
from offsetlog.core.group.state import GroupsState, GroupState

DEFAULT_RETENTION_MS = 10_080 * 60_000
"""``offsets.retention.minutes``, as in Kafka: a week."""


def is_expired(
    group: GroupState | GroupDraft, now_ms: int, retention_ms: int = DEFAULT_RETENTION_MS
) -> bool:
    """Whether the group has been empty and silent for the whole of the retention time."""
    silent = max(now_ms - group.active_at, 0)
    return group.alive and not group.members and silent >= retention_ms


def expired_groups(table: GroupsState, now_ms: int, retention_ms: int) -> tuple[str, ...]:
    """The groups that have expired."""
    return tuple(
        name
        for name, group in sorted(table.groups.items())
        if is_expired(group, now_ms, retention_ms)
    )
