"""Made ``e1a20b5/offsets-delta`` and ``e1a20b5/offsets-chain``: run once, with commit e1a20b5
checked out, as ``python -m tests.golden.make_offsets``.

It is kept to show what is in the files. It is never run again: what another commit writes is
not what a user of that one has on disk. A later format gets files of its own beside these.
"""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import Any

import offsetlog
from offsetlog.storage.memory import _FILES
from tests.golden import yesterday

PLACE = Path("/tmp/offsetlog-yesterday/offsets")
MEMORY = "memory://yesterday"
KEPT = {"retention.ms": -1}
NEVER = 2**40
"""Minutes."""
SESSION = {"session_timeout_ms": 600, "heartbeat_interval_ms": 200}


def fill(log: Any, topic: str, partitions: int, records: int) -> None:
    log.create_topic(topic, partitions, config=KEPT)
    with log.producer() as producer:
        for n in range(partitions * records):
            producer.send(topic, b"%d" % n, partition=n % partitions)


def quiet(log: Any, group: str, topics: list[str] | None = None, **more: Any) -> Any:
    return log.consumer(
        group, topics, auto_offset_reset="earliest", enable_auto_commit=False, **more
    )


def commit(log: Any, group: str, offsets: dict[Any, Any]) -> None:
    """As somebody who is no member."""
    with quiet(log, group) as consumer:
        consumer.assign(list(offsets))
        consumer.commit(offsets)


def told_of(log: Any) -> dict[str, Any]:
    # Groups that were deleted are in no list; their numbers go on.
    return {"groups": yesterday.groups(log), "deleted": {"gone": {"resets": 2}}}


def before_upkeep(log: Any, commits: int) -> None:
    fill(log, "a", 2, 20)
    fill(log, "b", 3, 10)
    # Members that came and left, and texts.
    with quiet(log, "billing", ["a"]) as one:
        assert len(one.poll(5)) > 0
        one.commit({("a", 0): (5, "file 7, ünï"), ("a", 1): 3})
        with quiet(log, "billing", ["a", "b"], client_id="second") as two:
            one.poll(0)
            two.poll(0)
    commit(log, "audit", {("a", 0): 20, ("a", 1): 20, ("b", 1): 4})
    log.group("audit").reset("a", to="earliest", dry_run=False)
    log.group("audit").reset("a", shift_by=7, partitions=[1], dry_run=False)
    commit(log, "partly", {("a", 0): 1, ("b", 0): 2, ("b", 2): 3})
    log.group("partly").delete_offsets("b", [0])
    commit(log, "gone", {("a", 0): 9})
    for to in ("earliest", "latest"):
        log.group("gone").reset("a", to=to, dry_run=False)
    log.group("gone").delete()
    # Enough versions for Delta's own checkpoints, for compaction and for old log files to go.
    with quiet(log, "busy", ["b"]) as busy:
        busy.poll(5)
        for n in range(commits):
            busy.commit({("b", n % 3): n // 3 % 11})


def after_upkeep(log: Any) -> Any:
    """Facts behind the stored state; and a member that is killed with what it holds."""
    commit(log, "billing", {("b", 0): (6, "late")})
    log.group("audit").reset("b", to="earliest", dry_run=False)
    commit(log, "late", {("b", 2): 8})
    killed = quiet(log, "killed", ["a"], client_id="dead", **SESSION)
    with quiet(log, "killed", ["a"], client_id="left", **SESSION) as left:
        deadline = 200
        while not (killed.assignment() and left.assignment()):
            killed.poll(0.01)
            left.poll(0.01)
            deadline -= 1
            assert deadline
        killed.commit(dict.fromkeys(killed.assignment(), 2))
    while len(killed.assignment()) < 2:
        killed.poll(0.01)
    killed.commit({("a", 0): 4, ("a", 1): 5})
    return killed


def small(log: Any) -> Any:
    """A few facts, no upkeep, nothing stored beside them."""
    fill(log, "a", 2, 20)
    commit(log, "audit", {("a", 0): 12, ("a", 1): (13, "text")})
    log.group("audit").reset("a", to=3, partitions=[0], dry_run=False)
    with quiet(log, "billing", ["a"]) as consumer:
        consumer.poll(5)
        consumer.commit()
    killed = quiet(log, "killed", ["a"], client_id="dead", **SESSION)
    killed.poll(5)
    killed.commit({("a", 0): 1})
    return killed


def make_delta() -> None:
    shutil.rmtree(PLACE, ignore_errors=True)
    log_at, small_at, table_at = (str(PLACE / name) for name in ("log", "small", "small-offsets"))
    with offsetlog.open(log_at) as log:
        before_upkeep(log, 470)
        log.maintain(grace_ms=0, offsets_retention_minutes=NEVER)
    # A program of its own, as any that comes after the upkeep.
    log = offsetlog.open(log_at)
    other = offsetlog.open(small_at, offsets_table=table_at)
    assert log.offsets_table.port.delta_address
    killed = [after_upkeep(log), small(other)]
    with offsetlog.open(log_at) as look, offsetlog.open(small_at, offsets_table=table_at) as one:
        means = {"log": told_of(look), "small": {"groups": yesterday.groups(one), "deleted": {}}}
    files = dict(yesterday.below(PLACE))
    for consumer in killed:
        consumer.close()
    log.close()
    other.close()
    for part in (
        "log/__consumer_offsets/_delta_log/_last_checkpoint",
        "log/__consumer_offsets/_state/checkpoint.json",
        "log/__consumer_offsets/compacted-",
        "log/__consumer_offsets/_heartbeats/",
        "small-offsets/_delta_log/00000000000000000000.json",
    ):
        assert any(name.startswith(part) for name in files), part
    assert "log/__consumer_offsets/_delta_log/00000000000000000000.json" not in files
    assert not any(name.startswith("small-offsets/_state") for name in files)
    yesterday.pack("offsets-delta", files.items(), means)


def make_chain() -> None:
    with offsetlog.open(MEMORY) as log:
        before_upkeep(log, 150)
        log.maintain(grace_ms=0, offsets_retention_minutes=NEVER)
    log = offsetlog.open(MEMORY)
    assert log.offsets_table.port.delta_address is None
    killed = after_upkeep(log)
    with offsetlog.open(MEMORY) as look:
        means = {"log": told_of(look)}
    start = "yesterday/"
    files = {
        f"{folder}/{name}".removeprefix(start): file.data
        for folder, inside in _FILES.folders.items()
        for name, file in inside.items()
    }
    killed.close()
    log.close()
    assert "__consumer_offsets/_state/checkpoint.json" in files
    yesterday.pack("offsets-chain", files.items(), means)


if __name__ == "__main__":
    socket.gethostname = lambda: "yesterday"
    make_delta()
    make_chain()
