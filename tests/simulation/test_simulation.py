"""The simulation finds nothing in the code as it is, and every bug that is planted.

``OFFSETLOG_HISTORIES`` sets how many histories the clean campaign runs (24), and after how
many a planted bug must be found, if those are more than its budget."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import suppress

import pytest

from offsetlog.errors import StorageError
from offsetlog.format.names import EntryName
from offsetlog.storage.store import Committed
from tests.planted import SIMULATED, all_histories, seeds_for
from tests.simulation.mutations import KEY_MUTATIONS, MUTATIONS, TABLE_MUTATIONS, planted
from tests.simulation.run import (
    KEYS_KIND,
    TABLE_KIND,
    TOPIC_KIND,
    Outcome,
    campaign,
    first_failure,
    main,
    plan_of,
    run,
    shrink,
    story,
)
from tests.simulation.store import SimStore
from tests.simulation.world import START_MS, File, Process, World
from tests.storage.faults import NO_FAULTS, Faults

HISTORIES = int(os.environ.get("OFFSETLOG_HISTORIES", "24"))
PLANTED = {
    bug: histories
    for histories in all_histories().values()
    for bug in histories.bugs
    if bug in {**MUTATIONS, **TABLE_MUTATIONS, **KEY_MUTATIONS}
}


def found(name: str) -> Outcome:
    """The first history that finds a bug which is planted."""
    histories = PLANTED[name]
    looked_at = seeds_for(histories, name, max(histories.budget, HISTORIES))
    count, outcome = first_failure(looked_at, SIMULATED[histories.name].kind)
    assert outcome is not None, f"{name!r} was not found in {count} histories"
    return outcome


@pytest.fixture(scope="module")
def clean() -> list[Outcome]:
    """Of topics, and half as many of tables and of compaction."""
    counts = {TOPIC_KIND: HISTORIES, TABLE_KIND: HISTORIES // 2, KEYS_KIND: HISTORIES // 2}
    return [
        outcome._replace(trace=[] if outcome.sound else outcome.trace)
        for kind, count in counts.items()
        for outcome in campaign(range(1, count + 1), kind)
    ]


def test_histories_with_faults_are_sound(clean):
    for outcome in clean:
        assert outcome.sound, story(outcome)
    assert sum(outcome.entries for outcome in clean) > 20 * len(clean)


def test_histories_without_faults_are_sound():
    for seed in range(1, 6):
        outcome = run(plan_of(seed)._replace(faults=NO_FAULTS))
        assert outcome.sound, story(outcome)


def test_every_kind_of_entry_and_every_verdict_is_met(clean):
    met = {what for outcome in clean for what in outcome.counts}
    missing = {
        "append counts",
        "append is void: duplicate",
        "append is void: deleted",
        "append is void: condemned",
        "replace counts",
        "replace is void: stale",
        "trim counts",
        "collect counts",
        "expire counts",
        "delete counts",
        "configure counts",
        "create counts",
        "crash",
        "lost",
        "late",
        "hidden",
        "caches",
        "append is void: no-partition",
        "freeze",
        "jump",
        "suspend",
        "clock",
        "full",
        "torn",
        "unordered",
        "table is published",
        "table closes",
        "table removes",
        "compact counts",
        "compact is void: stale",
        "erase counts",
        "erase is void: stale",
    } - met
    assert not missing


def test_a_seed_gives_the_same_history_each_time():
    first, again = run(plan_of(5)), run(plan_of(5))
    assert first.trace == again.trace
    assert first.counts == again.counts


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name):
    with planted(name):
        outcome = found(name)
    # A bug that is planted past a changed signature is no bug, and crashes at once.
    assert not re.search(r"\b(Type|Attribute|Name)Error\b", story(outcome))


def test_a_failure_is_told_as_a_story_and_shrinks():
    name = "rows taken out before they moved"
    with planted(name):
        outcome = found(name)
        smaller = shrink(outcome.plan, tries=25)
    assert not smaller.sound
    assert smaller.steps <= outcome.steps
    assert len(smaller.plan.roles) <= len(outcome.plan.roles)
    told = story(smaller)
    assert f"seed {smaller.plan.seed}" in told
    assert "VIOLATION: the rows of" in told
    assert "=> chain" in told


def test_a_failure_prints_the_command_that_runs_it_again(capsys):
    with planted("acknowledged before the fold"):
        assert main(["--seeds", "1:1", "--no-shrink"]) == 1
        said = capsys.readouterr().out
        [command] = re.findall("again: python -m tests.simulation.run (.*)", said)
        assert main([*command.split(), "--no-shrink"]) == 1
    assert said.splitlines()[:-1] == capsys.readouterr().out.splitlines()[:-1]
    assert "VIOLATION: " in said


def test_a_process_that_was_suspended_knows_nothing_of_it():
    world = World(1, NO_FAULTS, 100)
    process, other = Process(world, "laptop", 0), Process(world, "server", 0)
    before = process.env().monotonic(), other.env().monotonic(), process.env().now_ms()
    world._suspend(process)
    slept = (world.now_ms - START_MS) / 1000
    process.wakes()
    assert process.env().monotonic() == before[0]
    assert other.env().monotonic() == before[1] + slept > before[1]
    assert process.env().now_ms() == before[2] + slept * 1000


def test_a_full_disk_takes_nothing_from_anybody_and_lets_go_of_what_is_there():
    world = World(1, NO_FAULTS, 100)
    stores = [SimStore(world, Process(world, role, 0), True) for role in "ab"]
    stores[0].put("t/x", b"1")
    world.full_until = 10
    for store in stores:
        with pytest.raises(StorageError, match="the disk is full"):
            store.put("t/y", b"2")
        with pytest.raises(StorageError, match="the disk is full"):
            store.offer(b"3", "").put("t/_log/0")
    stores[1].delete(["t/x"])
    assert not world.files
    world.step = 10
    assert isinstance(stores[1].offer(b"3", "").put("t/_log/0"), Committed)


def test_what_is_torn_is_no_entry_and_deletes_go_on_behind_one_that_failed():
    world = World(1, Faults(torn=1.0), 100)
    store = SimStore(world, Process(world, "a", 0), True)
    entry = str(EntryName("t", 0))
    store.put(entry, b"whole")
    with pytest.raises(StorageError):
        store.put("t/partition=0/x", b"whole")
    assert world.files[entry].data == b"whole"
    assert len(world.files["t/partition=0/x"].data) < 5
    world.faults = Faults(refused=0.5, unordered=1.0)
    orders = set()
    for _ in range(20):
        world.files = {f"t/{n}": File(b"", 0) for n in range(6)}
        with suppress(StorageError):
            store.delete(list(world.files))
        orders.add(tuple(world.files))
    assert any(0 < len(left) < 5 and left[-1] != "t/5" for left in orders), orders


def test_the_command_runs_and_says_how_many():
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation.run", "--seeds", "1:2"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 histories" in done.stdout and "violations: 0" in done.stdout


def test_fibers_of_threads_give_the_same_histories(monkeypatch):
    """Without greenlet a history takes longer and is the same."""
    from tests.simulation import fibers

    green = run(plan_of(3))
    monkeypatch.setattr(fibers, "greenlet", None)
    assert run(plan_of(3)).trace == green.trace
