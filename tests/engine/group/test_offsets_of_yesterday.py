"""Offsets tables that commit e1a20b5 wrote: the same groups, and they go on from there."""

from __future__ import annotations

import copy
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import offsetlog
from tests.golden import yesterday

NEVER = 2**40
"""Minutes: these positions get older with every day, and shall not expire here."""
Open = Callable[[], Any]
DELTA, CHAIN = yesterday.meaning("offsets-delta"), yesterday.meaning("offsets-chain")
MEANING = {"delta": DELTA["log"], "bare": DELTA["log"], "small": DELTA["small"],
           "chain": CHAIN["log"], "chain-bare": CHAIN["log"]}  # fmt: skip


@pytest.fixture(params=MEANING)
def kind(request) -> str:
    return str(request.param)


@pytest.fixture
def place(kind: str, tmp_path: Path) -> Open:
    """Opens the log anew, as another program. ``bare``: without the stored state."""
    if kind.startswith("chain"):
        url = f"memory://{tmp_path.name}"
        with offsetlog.open(url) as log:
            for name, data in yesterday.files_of("offsets-chain"):
                if kind == "chain" or "/_state/" not in name:
                    log.store.put(name, data)
        return lambda: offsetlog.open(url)
    yesterday.unpack("offsets-delta", tmp_path)
    if kind == "small":
        table = str(tmp_path / "small-offsets")
        return lambda: offsetlog.open(str(tmp_path / "small"), offsets_table=table)
    if kind == "bare":
        shutil.rmtree(tmp_path / "log" / "__consumer_offsets" / "_state")
    return lambda: offsetlog.open(str(tmp_path / "log"))


@pytest.fixture
def log(place: Open) -> Iterator[Any]:
    with place() as log:
        yield log


@pytest.fixture
def groups(kind: str) -> dict[str, Any]:
    return copy.deepcopy(MEANING[kind]["groups"])


def told(place: Open) -> dict[str, Any]:
    with place() as log:
        return yesterday.groups(log)


def quiet(log: Any, group: str, topics: list[str] | None = None, **more: Any) -> Any:
    return log.consumer(
        group, topics, auto_offset_reset="earliest", enable_auto_commit=False, **more
    )


def test_the_same_groups_and_positions(place: Open, kind: str, groups: dict[str, Any]) -> None:
    assert told(place) == groups
    with place() as log:
        assert (log.offsets_table.port.delta_address is None) == kind.startswith("chain")
        assert log.group("gone").state() == "Dead"


def test_upkeep_changes_no_group(place: Open, groups: dict[str, Any]) -> None:
    for _ in range(2):
        with place() as log:
            log.maintain(grace_ms=0, offsets_retention_minutes=NEVER)
        assert told(place) == groups


def test_commits_go_on(place: Open, log: Any, groups: dict[str, Any]) -> None:
    with quiet(log, "audit") as consumer:
        consumer.assign([("a", 0), ("a", 1)])
        for _, partition, offset, _ in groups["audit"]["positions"][:2]:
            assert consumer.position(("a", partition)) == offset
        consumer.commit({("a", 0): (17, "today")})
    [at] = [n for n, said in enumerate(groups["audit"]["positions"]) if said[:2] == ["a", 0]]
    groups["audit"]["positions"][at] = ["a", 0, 17, "today"]
    assert told(place) == groups


def test_resets_go_on_with_the_next_number(
    place: Open, log: Any, kind: str, groups: dict[str, Any]
) -> None:
    before = groups["audit"]["resets"]
    assert before == (1 if kind == "small" else 3)
    log.group("audit").reset("a", to=11, partitions=[1], dry_run=False)
    log.group("audit").reset("a", shift_by=-2, partitions=[1], dry_run=False)
    [at] = [n for n, said in enumerate(groups["audit"]["positions"]) if said[:2] == ["a", 1]]
    groups["audit"]["positions"][at] = ["a", 1, 9, ""]
    groups["audit"]["resets"] = before + 2
    assert told(place) == groups
    for name, said in MEANING[kind]["deleted"].items():
        with quiet(log, name) as consumer:
            assert consumer.committed() == {}
            consumer.assign([("a", 0)])
            consumer.commit({("a", 0): 4})
        log.group(name).reset("a", to="latest", partitions=[0], dry_run=False)
        found = told(place)[name]
        assert found["resets"] == said["resets"] + 1
        assert found["positions"] == [["a", 0, 20, ""]]


def test_a_worker_joins_and_reads_on(place: Open, log: Any, groups: dict[str, Any]) -> None:
    before = groups["billing"]
    at = {(t, p): offset for t, p, offset, _ in before["positions"] if t == "a"}
    with log.producer() as producer:
        for partition in (0, 1):
            assert producer.send("a", b"new", partition=partition).result().offset == 20
    with quiet(log, "billing", ["a"]) as consumer:
        rows = []
        while len(rows) < sum(21 - offset for offset in at.values()) and (
            more := consumer.poll(5, max_records=1000)
        ):
            rows += more
        found = {tp: [r.offset for r in rows if (r.topic, r.partition) == tp] for tp in at}
        assert found == {tp: [*range(offset, 21)] for tp, offset in at.items()}
        consumer.commit()
        now = told(place)["billing"]
        assert now["state"] == "Stable"
        assert now["generation"] == before["generation"] + 1
        assert {(t, p): offset for t, p, offset, _ in now["positions"] if t == "a"} == {
            ("a", 0): 21,
            ("a", 1): 21,
        }
    after = told(place)
    assert after.pop("billing")["generation"] == before["generation"] + 2
    groups.pop("billing")
    assert after == groups


def test_a_killed_worker_is_put_out_and_its_partitions_read_on(
    place: Open, log: Any, groups: dict[str, Any]
) -> None:
    before = groups["killed"]
    [[dead, *_]] = before["members"]
    at = {(t, p): offset for t, p, offset, _ in before["positions"]}
    settings = {"session_timeout_ms": 600, "heartbeat_interval_ms": 200}
    with quiet(log, "killed", ["a"], **settings) as consumer:
        rows, deadline = [], time.monotonic() + 20
        while len(rows) < 40 - sum(at.values()):
            rows += consumer.poll(0.1)
            assert time.monotonic() < deadline
        for tp in (("a", 0), ("a", 1)):
            found = [r.offset for r in rows if (r.topic, r.partition) == tp]
            assert found == [*range(at.get(tp, 0), 20)]
        consumer.commit()
        now = told(place)["killed"]
        assert dead not in {member for member, *_ in now["members"]}
        assert now["generation"] > before["generation"]
        assert now["positions"] == [["a", 0, 20, ""], ["a", 1, 20, ""]]


def test_a_group_is_deleted_and_positions_too(
    place: Open, log: Any, groups: dict[str, Any]
) -> None:
    log.group("audit").delete_offsets("a", [0])
    log.group("killed").remove_members()
    log.group("killed").delete()
    said = groups["audit"]["positions"]
    groups["audit"]["positions"] = [each for each in said if each[:2] != ["a", 0]]
    groups.pop("killed")
    assert told(place) == groups
