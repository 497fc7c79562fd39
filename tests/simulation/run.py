"""A deterministic simulation of one topic: the real code, a simulated store, faults by a seed.

``python -m tests.simulation.run --seeds 1:500`` runs 500 histories, each with its own
actors, faults and interleaving of storage calls, and checks the promises of the log after
every step (see ``sim.oracle``). A failure prints its seed and, of a shorter history that fails
as well, the story; ``--seed N`` runs it again, with ``--no-shrink`` as it was.

Invariants:

1. A plan says everything: the same plan gives the same history.
2. When the faults stop, everybody ends, and what is stored passes ``verify``.
"""

from __future__ import annotations

import argparse
import io
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import redirect_stderr
from typing import NamedTuple

from offsetlog.core.group.fold import fold
from offsetlog.core.group.state import EMPTY
from offsetlog.engine.upkeep.verify import verify_topic
from tests.simulation.actors import ACTORS, THREADS
from tests.simulation.groups import offsets_port
from tests.simulation.ledger import Ledger
from tests.simulation.limits import tiny_format
from tests.simulation.oracle import rows_of
from tests.simulation.scene import COMPACTION, TOPIC, Scene
from tests.simulation.store import SimStore
from tests.simulation.world import Line, Process, Violation, World
from tests.storage.faults import NO_FAULTS, Faults, drawn, without

TOPIC_KIND, GROUPS_KIND, DELTA_KIND = "topic", "groups", "delta"


class Plan(NamedTuple):
    """All that a history follows from."""

    seed: int
    roles: tuple[str, ...]
    faults: Faults
    steps: int
    is_local: bool
    graces: tuple[int, ...]
    kind: str = TOPIC_KIND
    """``topic``, or ``groups``: workers, queries and resets upon one topic that only grows. In
    ``delta`` their table has Delta's rules, in ``groups`` it is a chain."""
    has_table: bool = False
    compacts: bool = False
    """The topic keeps the newest of each key, and keys are erased."""


class Outcome(NamedTuple):
    plan: Plan
    failure: str | None
    steps: int
    entries: int
    acknowledged: int
    counts: dict[str, int]
    trace: list[Line]

    @property
    def sound(self) -> bool:
        return self.failure is None


def plan_of(seed: int, kind: str = TOPIC_KIND) -> Plan:
    """The plan that a seed stands for."""
    if kind == TOPIC_KIND:
        return _topic_plan(seed)
    plan = _groups_plan(seed)
    if kind == DELTA_KIND:
        tidiers = ("tidier0", "tidier1")[: 1 + seed % 2]
        plan = plan._replace(kind=kind, roles=(*plan.roles, *tidiers))
    return plan


def _groups_plan(seed: int) -> Plan:
    rng = random.Random(f"{seed}/groups")
    roles = ["founder0", *(f"producer{i}" for i in range(rng.randint(1, 2)))]
    workers, streams = rng.choice(((2, 0), (3, 0), (4, 0), (0, 1), (0, 2), (1, 1), (2, 1)))
    roles += [f"worker{i}" for i in range(workers)] + [f"stream{i}" for i in range(streams)]
    roles += [f"resetter{i}" for i in range(rng.choice((0, 1, 1, 2)))]
    roles += [role for role in ("sink0", "publisher0", "compactor0") if rng.random() < 0.3]
    faults = drawn(rng)._replace(refused=0.0)
    steps = rng.choice((800, 1600, 2400))
    return Plan(seed, tuple(roles), faults, steps, rng.random() < 0.5, (60_000,), GROUPS_KIND)


def _topic_plan(seed: int) -> Plan:
    rng = random.Random(f"{seed}/plan")
    roles = [f"admin{i}" for i in range(rng.choice((1, 1, 2)))]
    roles += [f"producer{i}" for i in range(rng.randint(1, 3))]
    roles += [f"query{i}" for i in range(rng.randint(0, 2))]
    roles += [f"reader{i}" for i in range(rng.randint(1, 2))]
    roles += [f"publisher{i}" for i in range(rng.randint(0, 2))]
    roles += [f"maintainer{i}" for i in range(rng.randint(0, 2))]
    for role in ("collector0", "compactor0", "compactor1", "forgetter0"):
        if rng.random() < 0.3:
            roles.append(role)
    faults = drawn(rng)
    theme = rng.choice(("any", "any", "amnesia", "crowd"))
    if theme == "amnesia":
        # Answers are lost while senders are forgotten.
        roles += ["forgetter1", "forgetter2", "forgetter3"]
        faults = faults._replace(lost=0.3, never=0.15, hidden=0.2, refused=0.1, reads=0.03)
    elif theme == "crowd":
        # Many store states while slow requests are on their way.
        roles += ["publisher3", "publisher4", "publisher5"]
        faults = faults._replace(slow=0.1, crash=0.0)
    graces = rng.choice(((0,), (0, 2_000), (0, 2_000, 60_000), (30_000,)))
    steps = rng.choice((600, 1200, 2400))
    is_local = rng.random() < 0.4
    roles += [f"sink{i}" for i in range(rng.choice((0, 0, 1, 2)))]
    roles += ["stranger0"] if rng.random() < 0.15 else []
    has_table = seed % 4 == 3
    roles += ["maintainer3", "maintainer4", "maintainer5"] if has_table else []
    compacts = seed % 8 == 5
    roles += ["keycompactor0", "keycompactor1", "eraser0"] if compacts else []
    return Plan(
        seed, tuple(roles), faults, steps, is_local, graces, has_table=has_table, compacts=compacts
    )


def run(plan: Plan) -> Outcome:
    """One history. What it finds is in the outcome; nothing is raised."""
    in_groups = plan.kind != TOPIC_KIND
    with tiny_format(), redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        world = World(plan.seed, plan.faults, plan.steps)
        scene = Scene(world, plan.is_local, plan.graces, ACTORS, {} if in_groups else THREADS)
        if plan.has_table:
            scene.config += (("table.format", "delta"),)
        if plan.compacts:
            scene.config = tuple(sorted(scene.config + COMPACTION))
        world.spawn = scene.spawn
        if in_groups:
            scene.extra["ledger"] = Ledger(world, scene.oracle, plan.kind == DELTA_KIND)
        failure = None
        try:
            for role in plan.roles:
                world.start(role)
            world.run()
            _afterwards(world, scene)
            if plan.kind == DELTA_KIND:
                _table_afterwards(world, scene)
        except Violation as found:
            failure = str(found)
        except Exception as error:  # noqa: BLE001 - any error that nobody explained is a finding
            failure = _told(error)
        finally:
            world.close()
    oracle = scene.oracle
    return Outcome(
        plan, failure, world.step, oracle.truth.tip, oracle.acks, world.counts, world.trace
    )


def _told(error: BaseException) -> str:
    import traceback

    last = traceback.extract_tb(error.__traceback__)[-4:]
    places = " < ".join(f"{f.filename.rsplit('/', 1)[-1]}:{f.lineno}" for f in reversed(last))
    return f"{type(error).__name__}: {error} (at {places})"


def _afterwards(world: World, scene: Scene) -> None:
    """A new process opens what is left: it sees the truth, all of it, and verify is clean."""
    world.calm, world.current = True, None
    oracle = scene.oracle
    process = Process(world, "afterwards", 0)
    handle = scene.handle(process)
    state = handle.refresh()
    if state.tip != oracle.truth.tip:
        raise Violation(f"a fresh look ends at {state.tip}, the chain at {oracle.truth.tip}")
    oracle.check_state(state, "a fresh look")
    for partition in range(state.partitions):
        start, end = state.start(partition), state.end(partition)
        got = []
        for batch in handle.reader.read(partition, start, end):
            offsets = batch.table.column("offset").to_pylist()
            got += list(zip(offsets, rows_of(batch.table), strict=True))
        if start < end:
            oracle.read(partition, start, end, got, state.tip)
    if not state.tip:
        return
    store = SimStore(world, process, scene.is_local)
    report = verify_topic(store, TOPIC)
    for fault in report.faults:
        raise Violation(f"verify: {fault}")
    if report.caches and not world.broke_caches:
        # Upkeep may delete a leaf of a snapshot that a process which stood still stored late.
        strange = [cache.text for cache in report.caches if not cache.text.endswith("is missing")]
        if strange:
            raise Violation(f"verify: {strange[0]}")


def _table_afterwards(world: World, scene: Scene) -> None:
    """A new process reads the Delta table from its files: it adds up to the truth, and verify
    finds nothing."""
    ledger: Ledger = scene.extra["ledger"]
    process = Process(world, "table afterwards", 0)
    port = offsets_port(SimStore(world, process, scene.is_local), process, True)
    news = port.read(-1)
    if news.version != ledger.truth.version:
        raise Violation(
            f"a fresh look at the table ends at {news.version}, and it is at {ledger.truth.version}"
        )
    if news.version < 0:
        return
    if fold(EMPTY, news.facts, news.version).groups != ledger.truth.groups:
        raise Violation("the files of the table do not add up to what was committed")
    check = port.verify(lambda what, done, of: None)
    for fault in check.faults if check is not None else ():
        raise Violation(f"verify of the table: {fault}")


# --- many histories ------------------------------------------------------------------------


def campaign(seeds: Iterable[int], kind: str = TOPIC_KIND) -> Iterator[Outcome]:
    for seed in seeds:
        yield run(plan_of(seed, kind))


def first_failure(seeds: Iterable[int], kind: str = TOPIC_KIND) -> tuple[int, Outcome | None]:
    """How many histories it took, and the failing one; None if all are sound."""
    count = 0
    for outcome in campaign(seeds, kind):
        count += 1
        if not outcome.sound:
            return count, outcome
    return count, None


def shrink(plan: Plan, tries: int = 60) -> Outcome:
    """A smaller plan that fails as well: fewer actors, fewer kinds of faults, fewer steps."""
    best = run(plan)
    if best.sound:
        return best
    improved = True
    while improved and tries > 0:
        improved = False
        for smaller in _smaller(best.plan):
            tries -= 1
            outcome = run(smaller)
            if not outcome.sound and outcome.steps <= best.steps:
                best, improved = outcome, True
                break
            if tries <= 0:
                break
    return best


def _smaller(plan: Plan) -> Iterator[Plan]:
    for role in plan.roles[1:]:
        yield plan._replace(roles=tuple(r for r in plan.roles if r != role))
    for name in Faults._fields:
        if getattr(plan.faults, name):
            yield plan._replace(faults=without(plan.faults, name))
    if plan.steps > 60:
        yield plan._replace(steps=plan.steps // 2)
        yield plan._replace(steps=plan.steps * 4 // 5)


def story(outcome: Outcome, calls: bool = False) -> str:
    """The history as text: what was done, what landed, what went wrong."""
    plan = outcome.plan
    out = [
        f"seed {plan.seed}: {', '.join(plan.roles)}; "
        f"{'local' if plan.is_local else 'remote'} store, grace {plan.graces} ms",
        "faults: "
        + (", ".join(f"{k} {v:.3f}" for k, v in plan.faults._asdict().items() if v) or "none"),
    ]
    for line in outcome.trace:
        if calls or line.kind != "call":
            mark = {"land": "=>", "fault": "!!", "op": "  ", "call": " ."}[line.kind]
            out.append(f"{line.step:6} {mark} {line.who:14} {line.text}")
    out.append(f"VIOLATION: {outcome.failure}" if outcome.failure else "all is sound")
    return "\n".join(out)


def again(outcome: Outcome) -> str:
    """The command that runs the history of its seed again."""
    kind, seed = outcome.plan.kind, outcome.plan.seed
    return f"again: python -m tests.simulation.run --kind {kind} --seed {seed} --story"


def seed_range(text: str) -> range:
    low, _, high = text.partition(":")
    return range(int(low), int(high) + 1) if high else range(int(low), int(low) + 1)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.run")
    parser.add_argument("--seeds", type=seed_range, default=range(1, 101), metavar="FIRST:LAST")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--kind", choices=(TOPIC_KIND, GROUPS_KIND, DELTA_KIND), default=TOPIC_KIND)
    parser.add_argument("--story", action="store_true", help="tell the history of --seed")
    parser.add_argument("--calls", action="store_true", help="with every storage call")
    parser.add_argument("--no-faults", action="store_true")
    parser.add_argument("--no-shrink", action="store_true", help="tell a failure as it is")
    given = parser.parse_args(arguments)
    seeds = range(given.seed, given.seed + 1) if given.seed is not None else given.seeds
    began, total, failures = time.monotonic(), Counter[str](), 0
    done = 0
    for seed in seeds:
        plan = plan_of(seed, given.kind)
        if given.no_faults:
            plan = plan._replace(faults=NO_FAULTS)
        outcome = run(plan)
        done += 1
        total.update(outcome.counts)
        total["entries"] += outcome.entries
        total["acknowledged"] += outcome.acknowledged
        if not outcome.sound:
            failures += 1
            told = outcome if given.no_shrink else shrink(plan)
            print(f"{story(told, given.calls)}\n{again(told)}")
            if failures >= 3:
                break
        elif given.story:
            print(story(outcome, given.calls))
    seconds = time.monotonic() - began
    for what, count in sorted(total.items()):
        print(f"{count:9,}  {what}")
    print(
        f"{done} histories in {seconds:.0f} s ({60 * done / max(seconds, 0.01):.0f} a minute), "
        f"violations: {failures}"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
