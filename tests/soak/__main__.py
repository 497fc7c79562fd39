"""``python -m tests.soak --minutes 30``: everything, and one table of what came of it.

First the simulations of topics and of groups with their planted bugs, then real processes on each
storage, and last one topic under an even load: half an hour makes a thousand kills on a quiet
machine. Exit status 1 if anything was violated, or a planted bug was not caught."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.simulation import group_mutations, mutations
from tests.simulation.run import GROUPS_KIND, TOPIC_KIND, again, first_failure, shrink, story
from tests.simulation.run import campaign as simulate
from tests.soak import load
from tests.soak.campaign import Result, campaign
from tests.soak.places import SITES
from tests.storage.faults import Faults

PLANTED: dict[str, Any] = {TOPIC_KIND: mutations, GROUPS_KIND: group_mutations}

QUICK_BUGS = ("acknowledged before the fold", "rows taken out before they moved")
"""Bugs that real processes, too, meet within seconds; planted on each storage in turn."""
BY_LOST_ANSWERS, OTHERWISE = "duplicates count", "names of entries freed"
"""One more: nothing is put twice where no answer is lost, or where a client library tries again by
itself and meets its own file, which our store tells from another's."""
BUG_SECONDS, BUG_TRIES = 60.0, 6
"""A bug is looked for until it is found, at most so many times for so long."""
MOST_HISTORIES = 400


class Row(NamedTuple):
    storage: str
    histories: int
    operations: int
    faults: int
    kills: int
    caught: str
    violations: int


HEADS = (
    "storage",
    "histories",
    "operations",
    "faults",
    "kills",
    "planted bugs caught",
    "violations",
)


def simulated(kind: str, seconds: float, bugs: bool, first: int) -> Row:
    """Histories from seed ``first`` on, and then with each planted bug until it is found."""
    deadline, done, entries, violations = time.monotonic() + seconds, 0, 0, 0
    met = Counter[str]()
    planted_bugs = PLANTED[kind]
    while time.monotonic() < deadline:
        [outcome] = simulate([first + done], kind)
        done += 1
        entries += outcome.entries
        met.update({what: n for what, n in outcome.counts.items() if what in Faults._fields})
        if not outcome.sound:
            violations += 1
            smaller = shrink(outcome.plan)
            print(f"{story(smaller)}\n{again(smaller)}", flush=True)
    told = ", ".join(f"{n:,} x {what}" for what, n in met.most_common())
    print(f"simulated, {kind}: {done} histories from seed {first} on; {told}", flush=True)
    caught = 0
    for name in planted_bugs.MUTATIONS if bugs else ():
        with planted_bugs.planted(name):
            count, found = first_failure(range(first, first + MOST_HISTORIES), kind)
        caught += found is not None
        what = "found after" if found is not None else "NOT found in"
        print(f"planted in the simulation: {name}: {what} {count} histories", flush=True)
    bugs_in_all = f"{caught}/{len(planted_bugs.MUTATIONS) if bugs else 0}"
    faults = sum(n for what, n in met.items() if what != "crash")
    return Row(f"simulated, {kind}", done, entries, faults, met["crash"], bugs_in_all, violations)


def real(storage: str, seconds: float, kills: int, seed: int, bugs: bool) -> Row:
    deadline = time.monotonic() + seconds
    done: list[Result] = []
    while not done or (time.monotonic() < deadline and sum(r.kills for r in done) < kills):
        rest = deadline - time.monotonic()
        result = campaign(storage, kills, min(120.0, max(rest, 10.0)), seed + len(done))
        done.append(result)
        _tell(result)
    caught = 0
    planted = bugs_of(storage) if bugs else ()
    for name in planted:
        operations = tries = 0
        found = False
        while not found and tries < BUG_TRIES:
            tries += 1
            result = campaign(storage, 10**6, BUG_SECONDS, seed + tries, name)
            found, operations = bool(result.violations), operations + result.operations
        caught += found
        told = f"{'' if found else 'NOT '}caught after {tries} histories, {operations:,} operations"
        print(f"planted on {storage}: {name}: {told}", flush=True)
    return Row(
        storage,
        len(done),
        sum(r.operations for r in done),
        sum(sum(r.faults.values()) + r.freezes for r in done),
        sum(r.kills for r in done),
        f"{caught}/{len(planted)}",
        sum(len(r.violations) for r in done),
    )


def bugs_of(storage: str) -> tuple[str, ...]:
    return *QUICK_BUGS, BY_LOST_ANSWERS if storage in ("seaweedfs", "azurite") else OTHERWISE


def _tell(result: Result) -> None:
    what = ", ".join(f"{n} x {what}" for what, n in result.faults.items())
    print(
        f"{result.storage}: {result.operations:,} operations, {result.kills} kills, "
        f"{result.freezes} freezes, {what or 'no other fault'}, "
        f"{len(result.violations)} violations in {result.seconds:.0f} s",
        flush=True,
    )
    for violation in result.violations[:10]:
        print(f"  {violation}")
    print(result.story, end="\n" if result.story else "", flush=True)


def table(rows: list[Row]) -> str:
    cells = [HEADS, *([f"{v:,}" if isinstance(v, int) else v for v in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(HEADS))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    )


def _rows(given: argparse.Namespace) -> Iterator[Row]:
    kinds = list(PLANTED) if given.simulated else []
    seconds = 60 * given.minutes / (len(given.only) + len(kinds) + given.load)
    for kind in kinds:
        yield simulated(kind, seconds, not given.no_bugs, given.seed)
    for storage in given.only:
        yield real(storage, seconds, given.kills, given.seed, not given.no_bugs)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--minutes", type=float, default=30, help="in all, bugs not counted")
    parser.add_argument("--kills", type=int, default=10**6, help="at most, for each storage")
    parser.add_argument("--only", nargs="*", choices=list(SITES), default=list(SITES))
    parser.add_argument("--seed", type=int, default=1, help="the first of the histories")
    parser.add_argument("--no-bugs", action="store_true", help="plant none")
    parser.add_argument("--no-simulation", dest="simulated", action="store_false")
    parser.add_argument("--no-load", dest="load", action="store_false")
    given = parser.parse_args(arguments)
    rows = list(_rows(given))
    print(f"\n{table(rows)}")
    under_load = ()
    if given.load:
        outcome = load.load(60 * given.minutes / (len(rows) + 1))
        under_load = outcome.violations
        print(f"\n{load.table(outcome)}")
    total = sum(row.kills for row in rows)
    missed = [row.storage for row in rows if len(set(row.caught.split("/"))) > 1]
    violations = sum(row.violations for row in rows) + len(under_load)
    print(f"\n{total:,} kills, violations: {violations}; bugs missed on: {missed or 'none'}")
    return 1 if violations or missed else 0


if __name__ == "__main__":
    sys.exit(main())
