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

TOPIC_KIND, TABLE_KIND, KEYS_KIND = TOPIC_KINDS = ("topic", "table", "keys")
GROUPS_KIND, DELTA_KIND = "groups", "delta"
KINDS = (*TOPIC_KINDS, GROUPS_KIND, DELTA_KIND)


class Plan(NamedTuple):
    """All that a history follows from."""

    seed: int
    roles: tuple[str, ...]
    faults: Faults
    steps: int
    is_local: bool
    graces: tuple[int, ...]
    kind: str = TOPIC_KIND
    """``topic``; ``table``, where it is a table, too; ``keys``, where it keeps the newest of each
    key, and keys are erased; or ``groups``: workers, queries and resets upon one topic that only
    grows. In ``delta`` their table has Delta's rules, in ``groups`` it is a chain."""
    config: tuple[tuple[str, str], ...] = ()
    """The topic's settings, but for those of every topic."""
    most_partitions: int = 3
    """When it is created. With few a partition has many files."""


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
    if kind in TOPIC_KINDS:
        return _topic_plan(seed, kind)
    plan = _groups_plan(seed)
    if kind == DELTA_KIND:
        tidiers = ("tidier0", "tidier1")[: 1 + seed % 2]
        plan = plan._replace(kind=kind, roles=(*plan.roles, *tidiers))
    return plan


def _groups_plan(seed: int) -> Plan:
    rng = random.Random(f"{seed}/groups")
    roles = ["founder0", *(f"producer{i}" for i in range(rng.randint(1, 2)))]
    workers, streams = rng.choice(((2, 0), (4, 0), (0, 1), (0, 2), (0, 3), (1, 1), (1, 2)))
    roles += [f"worker{i}" for i in range(workers)] + [f"stream{i}" for i in range(streams)]
    roles += [f"resetter{i}" for i in range(rng.choice((0, 1, 1, 2)))]
    roles += [role for role in ("sink0", "publisher0", "compactor0") if rng.random() < 0.3]
    faults = drawn(rng)._replace(refused=0.0)
    steps = rng.choice((800, 1600, 2400))
    return Plan(seed, tuple(roles), faults, steps, rng.random() < 0.5, (60_000,), GROUPS_KIND)


LEANS = ("any", "amnesia", "hurry", "lives", "amnesia", "hurry")
"""What the history of a topic leans on, by turns: few roles, so that what they need to meet is met
often. The first has everything, by chance."""


def _topic_plan(seed: int, kind: str) -> Plan:
    rng = random.Random(f"{seed}/plan")
    lean = LEANS[seed % len(LEANS)] if kind == TOPIC_KIND else kind
    faults = drawn(rng)
    graces = rng.choice(((0,), (0, 2_000), (0, 2_000, 60_000), (30_000,)))
    steps = rng.choice((600, 1200, 2400))
    config: dict[str, str] = {}
    most_partitions = 3
    first = rng.choice(("admin", "founder"))
    roles: dict[str, tuple[int, ...]]
    """How many there may be of each."""
    if lean == "amnesia":
        # Answers are lost while senders are forgotten.
        roles = {first: (1,), "producer": (4,), "query": (1, 2), "forgetter": (4, 5),
                 "sink": (0, 1), "stranger": (0, 1)}  # fmt: skip
        steps = rng.choice((1200, 2400, 4800))
        faults = faults._replace(
            lost=0.3, never=0.08, late=0.05, hidden=0.2, refused=0.15, reads=0.25, slow=0, crash=0
        )
    elif lean == TABLE_KIND:
        # Files that are in a table are rewritten, and go.
        roles = {first: (1,), "producer": (3,), "reader": (0, 1), "maintainer": (0, 0, 1),
                 "collector": (1,), "compactor": (2,), "sink": (0, 1)}  # fmt: skip
        config = {"table.format": "delta", "segment.bytes": rng.choice(("260", "1000", "4000")),
                  "retention.bytes": rng.choice(("-1", "800"))}  # fmt: skip
        graces = rng.choice(((0,), (2_000,), (2_000,), (0, 30_000)))
        steps = rng.choice((2400, 3600))
        most_partitions = 1
        faults = _milder(faults, rng)
    elif lean == KEYS_KIND:
        # Files are rewritten by several at the same time.
        roles = {"founder": (1,), "producer": (3,), "reader": (0, 1), "compactor": (1,),
                 "keycompactor": (3,), "eraser": (2,), "sink": (0, 0, 1)}  # fmt: skip
        config = {**COMPACTION, "delete.retention.ms": rng.choice(("2000", "600000"))}
        most_partitions = rng.choice((1, 1, 2))
        faults = _milder(faults, rng)._replace(slow=0.05)
    elif lean == "hurry":
        # Upkeep waits for nobody, and what is read or named was written long ago.
        roles = {first: (1,), "producer": (2,), "reader": (2, 3), "publisher": (1, 2),
                 "maintainer": (1,), "collector": (1, 2), "compactor": (3, 4),
                 "sink": (1,), "stranger": (0, 1)}  # fmt: skip
        config = {"segment.bytes": rng.choice(("260", "1000"))}
        faults = _milder(faults, rng)._replace(slow=0.05)
        graces = (0,)
    elif lean == "lives":
        # The topic is deleted and created again, by several who are slow to see it.
        roles = {"admin": (3, 4), "producer": (2, 3), "query": (0, 1), "reader": (1,),
                 "compactor": (1, 2), "sink": (0, 1)}  # fmt: skip
        faults = _milder(faults, rng)._replace(slow=0.08, lost=0.1, late=0.05)
    else:
        roles = {"admin": (1, 1, 2), "producer": (1, 2, 3), "query": (0, 1, 2), "reader": (1, 2),
                 "publisher": (0, 1, 2, 5), "maintainer": (0, 1, 2), "collector": (0, 0, 1),
                 "compactor": (0, 0, 1, 2), "forgetter": (0, 0, 1), "sink": (0, 0, 1, 2),
                 "stranger": (0, 1)}  # fmt: skip
    names = (f"{role}{i}" for role in roles for i in range(rng.choice(roles[role])))
    return Plan(
        seed,
        tuple(names),
        faults,
        steps,
        rng.random() < 0.4,
        graces,
        kind,
        config=tuple(sorted(config.items())),
        most_partitions=most_partitions,
    )


def _milder(faults: Faults, rng: random.Random) -> Faults:
    """Half of the histories get further in the same time."""
    mild = rng.choice((0.2, 1.0))
    return Faults(*(rate * mild for rate in faults))


def run(plan: Plan) -> Outcome:
    """One history. What it finds is in the outcome; nothing is raised."""
    in_groups = plan.kind not in TOPIC_KINDS
    with tiny_format(), redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        world = World(plan.seed, plan.faults, plan.steps)
        scene = Scene(world, plan.is_local, plan.graces, ACTORS, {} if in_groups else THREADS)
        scene.most_partitions = plan.most_partitions
        scene.config = tuple(sorted({**dict(scene.config), **dict(plan.config)}.items()))
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
    parser.add_argument("--kind", choices=KINDS, default=TOPIC_KIND)
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
