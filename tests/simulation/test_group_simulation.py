"""Groups, queries and resets in simulated histories: sound as they are, and every planted bug is
found. ``OFFSETLOG_HISTORIES`` sets how many clean histories are run (20)."""

from __future__ import annotations

import os

import pytest

from pyspark_offsetlog.source.group_owner import GroupOwner
from tests.planted import all_histories, seeds_for
from tests.simulation import delta_mutations
from tests.simulation.group_mutations import MUTATIONS, planted
from tests.simulation.run import (
    DELTA_KIND,
    GROUPS_KIND,
    Plan,
    campaign,
    first_failure,
    plan_of,
    run,
    story,
)
from tests.storage.faults import NO_FAULTS

HISTORIES = int(os.environ.get("OFFSETLOG_HISTORIES", "20"))


def seeds(histories: str, name: str) -> list[int]:
    kind = all_histories()[histories]
    return seeds_for(kind, name, max(kind.budget, HISTORIES))


def test_histories_of_groups_are_sound() -> None:
    met: dict[str, int] = {}
    for outcome in campaign(range(1, HISTORIES + 1), GROUPS_KIND):
        assert outcome.sound, story(outcome)
        for what, count in outcome.counts.items():
            met[what] = met.get(what, 0) + count
    for kind in ("commit", "join", "leave", "reset", "topics"):
        assert met.get(f"fact {kind}"), kind


def test_histories_of_groups_upon_a_delta_table_are_sound() -> None:
    met: dict[str, int] = {}
    for outcome in campaign(range(1, HISTORIES // 2 + 1), DELTA_KIND):
        assert outcome.sound, story(outcome)
        for what, count in outcome.counts.items():
            met[what] = met.get(what, 0) + count
    for kind in ("fact commit", "fact join", "fact reset", "compaction"):
        assert met.get(kind), kind


def test_histories_of_groups_without_faults_are_sound() -> None:
    for seed in range(1, 4):
        outcome = run(plan_of(seed, GROUPS_KIND)._replace(faults=NO_FAULTS))
        assert outcome.sound, story(outcome)


def _queries_alone(seed: int) -> Plan:
    """Queries of several checkpoints and one group, which nothing disturbs."""
    plan = plan_of(seed, GROUPS_KIND)
    return plan._replace(
        faults=NO_FAULTS, roles=("founder0", "producer0", "stream0", "stream1", "stream3")
    )


def test_queries_that_share_a_group_wait_for_its_owner_to_stop() -> None:
    takeovers = 0
    for seed in range(1, 9):
        outcome = run(_queries_alone(seed))
        assert outcome.sound, story(outcome)
        takeovers += outcome.counts.get("polite takeover", 0)
    assert takeovers


def test_a_newcomer_that_fences_an_owner_that_lives_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(GroupOwner, "_may_expel", lambda self, owner: True)
    failures = [run(_queries_alone(seed)).failure or "" for seed in range(1, 9)]
    assert any("lives, and has beaten" in failure for failure in failures), failures


def test_a_history_of_a_group_is_the_same_each_time() -> None:
    first, second = run(plan_of(3, GROUPS_KIND)), run(plan_of(3, GROUPS_KIND))
    assert (first.steps, first.entries, first.counts) == (
        second.steps,
        second.entries,
        second.counts,
    )


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_every_planted_bug_of_groups_is_found(name: str) -> None:
    with planted(name):
        tried, outcome = first_failure(seeds("simulated groups", name), GROUPS_KIND)
    assert outcome is not None, f"not found in {tried} histories"


@pytest.mark.parametrize("name", sorted(delta_mutations.MUTATIONS))
def test_every_planted_bug_of_the_delta_table_is_found_upon_it_only(name: str) -> None:
    with delta_mutations.planted(name):
        tried, outcome = first_failure(seeds("simulated Delta", name), DELTA_KIND)
        assert outcome is not None, f"not found in {tried} histories"
        assert all(upon.sound for upon in campaign([outcome.plan.seed, 1, 2], GROUPS_KIND))
