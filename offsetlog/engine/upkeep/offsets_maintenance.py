"""Looking after the offsets table: groups that nobody needs, dead members, files.

Invariants:

1. A group goes when it has had no member and no commit for the whole retention time, as of the
   storage's clock: a maintainer whose own is wrong gives nothing up early. Whether that is so is
   asked again when the fact is written.
2. A member goes when its heartbeat has not changed for the whole retention time, by the
   storage's clock: this is for groups whose last worker was killed, and nobody watches.
3. The state is stored before anything is deleted.
"""

from __future__ import annotations

from typing import NamedTuple

from offsetlog.core.group.requests import ExpelRequest, ExpireRequest, Request
from offsetlog.core.group.retention import expired_groups
from offsetlog.core.group.state import GroupsState
from offsetlog.engine.group.offsets_table import OffsetsTable

DEFAULT_RETENTION_MINUTES = 10_080


class OffsetsMaintained(NamedTuple):
    """What one round did to the offsets table."""

    expired_groups: tuple[str, ...]
    expired_positions: int
    expelled_members: int
    files_compacted: int
    files_written: int
    files_deleted: int
    version: int


def maintain_offsets(
    offsets: OffsetsTable, retention_minutes: int, grace_ms: int
) -> OffsetsMaintained | None:
    """One round; None when there is no table yet."""
    retention_ms = retention_minutes * 60_000
    table = offsets.look()
    if table.version < 0:
        return None
    now = offsets.port.storage_now()
    if now is None:
        now = offsets.env.now_ms()
    dead = _dead(offsets, table, now, retention_ms)
    if dead:
        offsets.ask(*dead)
        table = offsets.look()
    names = expired_groups(table, now, retention_ms)
    held = {name: len(table.group(name).positions) for name in names}
    if names:
        requests: list[Request] = [
            ExpireRequest(name, retention_ms, now, table.version) for name in names
        ]
        offsets.ask(*requests)
        names = tuple(name for name in names if not offsets.table.group(name).alive)
    done = offsets.maintain(grace_ms)
    return OffsetsMaintained(
        names,
        sum(held[name] for name in names),
        len(dead),
        done.files_compacted,
        done.files_written,
        done.files_deleted,
        done.version,
    )


def _dead(offsets: OffsetsTable, table: GroupsState, now: int, retention_ms: int) -> list[Request]:
    out: list[Request] = []
    for group in table.groups.values():
        if max(now - group.active_at, 0) < retention_ms:
            continue
        for name, member in group.members.items():
            if not member.subscription.session_ms:
                continue
            age = offsets.port.beat_age_ms(name, now)
            if age is None or max(age, 0) >= retention_ms:
                out.append(
                    ExpelRequest(group.name, name, member.joined, "maintenance", "it is silent")
                )
    return out
