"""``python -m tests.soak --minutes 30``: everything, and one table of what came of it.

First the simulations of topics and of groups, then the generators, then real processes on each
storage, each with its planted bugs, and last one topic under an even load: half an hour makes some
hundred kills on a quiet machine. Exit status 1 if anything was violated, or a planted bug was
missed.

1. It ends when its minutes are over, and a minute or two: what is left is shared out anew before
   each row, so that one that takes longer takes it from the others.
2. What runs gets enough to be judged. With too few minutes for all rows it runs some of them, and
   begins where a run with the ``--seed`` before this one ended; a planted bug is begun only while
   there is time for a fifth of its budget, in which it is found. What was left out is said.
3. Of a row's time two fifths go to its planted bugs. Which of them were not met in that time is
   said; a bug is missed that was looked for in as many histories as should do."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import NamedTuple

from tests.generators.registry import GENERATORS, OPERATIONS, WITH, Generator
from tests.planted import SIMULATED, all_histories, seeds_for
from tests.simulation.run import again, first_failure, shrink, story
from tests.simulation.run import campaign as simulate
from tests.soak import load
from tests.soak.campaign import Result, campaign
from tests.soak.places import SITES
from tests.storage.faults import Faults

LOAD = "load"
WEIGHTS = {**dict.fromkeys(SIMULATED, 2), **dict.fromkeys(SITES, 3), LOAD: 4}
"""How much of the time a row gets; all others get 1."""
BUGS_SHARE, BUGS_SHARE_OF_FEW = 0.4, 0.8
"""How much of a row's time its planted bugs get, the second where there is little time."""

QUICK_BUGS = ("acknowledged before the fold", "rows taken out before they moved")
"""Bugs that real processes, too, meet within seconds; planted on each storage in turn."""
BY_LOST_ANSWERS, OTHERWISE = "duplicates count", "names of entries freed"
"""One more: nothing is put twice where no answer is lost, or where a client library tries again by
itself and meets its own file, which our store tells from another's."""
BUG_SECONDS, BUG_TRIES = 60.0, 6
"""A bug is looked for until it is found, at most so many times for so long."""
LEAST_SECONDS = 4.0
"""A run of processes that is shorter shows nothing."""
LOAD_LEAST = 40.0
"""A load that is shorter shows nothing."""
MOST_HISTORIES = 400
LEAST_HISTORIES = 10
"""So many without a bug are the least that a row shows anything with."""
HISTORY_SECONDS = {"simulated groups": 0.2, "simulated keys": 0.7, "simulated tables": 0.7}
"""What a history took when this was written; all others took half a second at the most."""
REAL_SECONDS, REAL_BUG_SECONDS = 30.0, 20.0
"""The least for processes on a storage, and for each of the bugs that are planted in them."""
LARGEST_PART = 0.5
"""A row for which there is no time takes no more than this of the minutes."""


class Bugs:
    """The planted bugs of a row, and what became of them."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.unmet = list(names)
        """Those that were not met in the time; all, to begin with."""
        self.caught: list[str] = []
        self.missed: list[str] = []
        """Those that should have been met."""
        self.left_out: list[str] = []
        """Those for which there was too little time to begin with them."""

    def begin(self, seed: int) -> Iterable[str]:
        """Their names, in an order of the seed's: those that are left out are others each time."""
        return random.Random(seed).sample(self.unmet, len(self.unmet))

    def leave_out(self, name: str) -> None:
        self.unmet.remove(name)
        self.left_out.append(name)

    def note(self, name: str, was_caught: bool, was_tried: bool) -> str:
        """What to print."""
        if not was_caught and not was_tried:
            return "not met in the time"
        self.unmet.remove(name)
        (self.caught if was_caught else self.missed).append(name)
        return "caught" if was_caught else "NOT caught"

    def __str__(self) -> str:
        every = (*self.caught, *self.missed, *self.unmet, *self.left_out)
        return f"{len(self.caught)}/{len(every)}"


class Row(NamedTuple):
    name: str
    histories: int
    operations: int
    faults: int
    kills: int
    bugs: Bugs
    violations: int


HEADS = ("", "histories", "operations", "faults", "kills", "planted bugs caught", "violations")


class Share:
    """The time of a row, and of its bugs, by a clock."""

    def __init__(self, seconds: float, for_bugs: float, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.end = clock() + seconds
        self.clean_end = self.end - for_bugs * seconds
        self.with_bugs = for_bugs > 0

    @property
    def clean_left(self) -> float:
        return self.clean_end - self.clock()

    @property
    def left(self) -> float:
        return self.end - self.clock()

    def has_time_for(self, row: str, seconds: float) -> bool:
        """To look for a bug in a fifth of its budget, at so many seconds a history."""
        return self.left >= all_histories()[row].margin * seconds

    def seeds(self, seeds: Iterable[int]) -> Iterable[int]:
        """These, until the time is over."""
        for seed in seeds:
            if self.left <= 0:
                return
            yield seed


def simulated(name: str, share: Share, first: int) -> Row:
    """Histories from seed ``first`` on, and then with each planted bug until it is found."""
    kind, _, planted_bugs, plant = SIMULATED[name]
    done, entries, violations, began = 0, 0, 0, share.clock()
    met = Counter[str]()
    while not done or share.clean_left > 0:
        [outcome] = simulate([first + done], kind)
        done += 1
        entries += outcome.entries
        met.update({what: n for what, n in outcome.counts.items() if what in Faults._fields})
        if not outcome.sound:
            violations += 1
            smaller = shrink(outcome.plan)
            print(f"{story(smaller)}\n{again(smaller)}", flush=True)
    _say(name, done, first, met)
    each = (share.clock() - began) / done
    bugs = Bugs(planted_bugs if share.with_bugs else ())
    for bug in bugs.begin(first):
        if not share.has_time_for(name, each):
            bugs.leave_out(bug)
            continue
        with plant(bug):
            seeds = share.seeds(range(first, first + MOST_HISTORIES))
            count, failure = first_failure(seeds, kind)
        said = bugs.note(bug, failure is not None, count == MOST_HISTORIES)
        print(f"planted: {name}: {bug}: {said}, {count} histories", flush=True)
    faults = sum(n for what, n in met.items() if what != "crash")
    return Row(name, done, entries, faults, met["crash"], bugs, violations)


def generated(generator: Generator, share: Share, first: int) -> Row:
    """Histories of a generator, likewise."""
    name, done, violations, began = generator.name, 0, 0, share.clock()
    counts = Counter[str]()
    with generator.surroundings():
        while not done or share.clean_left > 0:
            outcome = generator.history(first + done)
            done += 1
            counts.update(outcome.counts)
            if outcome.failure is not None:
                violations += 1
                text = f"{type(outcome.failure).__name__}: {outcome.failure}"
                print(f"{name}: {text[:2000]}\n{generator.again(outcome.seed)}", flush=True)
    operations = counts.pop(OPERATIONS, 0)
    pairs = Counter({what: counts.pop(what) for what in list(counts) if WITH in what})
    _say(name, done, first, counts)
    each = (share.clock() - began) / done
    if pairs:
        print(generator.told(pairs), flush=True)
    bugs = Bugs(generator.planted if share.with_bugs else ())
    for bug in bugs.begin(first):
        if not share.has_time_for(name, each):
            bugs.leave_out(bug)
            continue
        planted, caught, count = generator.planted[bug], False, 0
        beside = generator.surroundings() if planted.beside and share.left > 0 else nullcontext()
        with planted.plant(), beside:
            for seed in share.seeds(seeds_for(all_histories()[name], bug, MOST_HISTORIES)):
                count += 1
                caught = generator.history(seed).failure is not None
                if caught:
                    break
        said = bugs.note(bug, caught, count >= MOST_HISTORIES)
        print(f"planted: {name}: {bug}: {said}, {count} histories", flush=True)
    return Row(name, done, operations, counts.total(), 0, bugs, violations)


def _say(name: str, done: int, first: int, met: Counter[str]) -> None:
    what = ", ".join(f"{n:,} x {what}" for what, n in met.most_common())
    print(f"{name}: {done:,} histories from seed {first} on; {what}", flush=True)


def real(storage: str, share: Share, kills: int, seed: int) -> Row:
    done: list[Result] = []
    while not done or (
        share.clean_left > LEAST_SECONDS and sum(result.kills for result in done) < kills
    ):
        seconds = min(120.0, max(share.clean_left, LEAST_SECONDS))
        result = campaign(storage, kills, seconds, seed + len(done))
        done.append(result)
        _tell(result)
    bugs = Bugs(bugs_of(storage) if share.with_bugs else ())
    for name in bugs.begin(seed):
        if share.left < REAL_BUG_SECONDS:
            bugs.leave_out(name)
            continue
        operations = tries = 0
        caught = False
        while not caught and tries < BUG_TRIES and share.left > LEAST_SECONDS:
            tries += 1
            seconds = min(BUG_SECONDS, share.left)
            result = campaign(storage, 10**6, seconds, seed + tries, name)
            caught, operations = bool(result.violations), operations + result.operations
        said = bugs.note(name, caught, tries == BUG_TRIES)
        print(
            f"planted: {storage}: {name}: {said}, {tries} histories, {operations:,} operations",
            flush=True,
        )
    return Row(
        storage,
        len(done),
        sum(r.operations for r in done),
        sum(sum(r.faults.values()) + r.freezes for r in done),
        sum(r.kills for r in done),
        bugs,
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
    cells = [HEADS, *([f"{v:,}" if isinstance(v, int) else str(v) for v in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(HEADS))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    )


def _works(given: argparse.Namespace, names: Sequence[str]) -> dict[str, Callable[[Share], Row]]:
    """What makes each row."""
    works: dict[str, Callable[[Share], Row]] = {}
    for name in SIMULATED:
        works[name] = lambda share, name=name: simulated(name, share, given.seed)  # type: ignore[misc]
    for generator in GENERATORS:
        works[generator.name] = lambda share, generator=generator: generated(  # type: ignore[misc]
            generator, share, given.seed
        )
    for storage in SITES:
        works[storage] = lambda share, storage=storage: real(  # type: ignore[misc]
            storage, share, given.kills, given.seed
        )
    return {name: works[name] for name in names if name in works}


def least_seconds(name: str, with_bugs: bool) -> float:
    """What a row takes to be judged, with its bugs."""
    if name == LOAD:
        return LOAD_LEAST
    if name in SITES:
        return REAL_SECONDS + (REAL_BUG_SECONDS * len(bugs_of(name)) if with_bugs else 0.0)
    histories = all_histories()[name]
    count = LEAST_HISTORIES + (histories.margin * len(histories.bugs) if with_bugs else 0)
    return HISTORY_SECONDS.get(name, 0.5) * count


class Chosen(NamedTuple):
    rows: list[str]
    """Those that there is time for."""
    left_out: list[str]
    """The others, in their turn: one runs all the same if the first ones leave time for it."""


def chosen(names: Sequence[str], seconds: float, seed: int, with_bugs: bool) -> Chosen:
    """All rows, or some in turn, behind those of the seed before."""
    least = {name: least_seconds(name, with_bugs) for name in names}
    if sum(least.values()) <= seconds:
        return Chosen(list(names), [])
    begin = 0
    for _ in range(max(1, seed % 1000)):
        in_turn = [*names[begin:], *names[:begin]]
        left, count = seconds, 0
        for name in in_turn:
            left -= min(least[name], LARGEST_PART * seconds)
            if count and left < 0:
                break
            count += 1
        begin = (begin + count) % len(names)
    return Chosen(in_turn[:count], in_turn[count:])


def main(arguments: list[str] | None = None, *, clock: Callable[[], float] = time.monotonic) -> int:
    names = [*SIMULATED, *(generator.name for generator in GENERATORS), *SITES, LOAD]
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--minutes", type=float, default=30, help="in all")
    parser.add_argument("--kills", type=int, default=10**6, help="at most, for each storage")
    parser.add_argument("--only", nargs="*", choices=names, default=names)
    parser.add_argument("--seed", type=int, default=1, help="the first of the histories")
    parser.add_argument("--no-bugs", action="store_true", help="plant none")
    given = parser.parse_args(arguments)
    end = clock() + 60 * given.minutes
    wanted = [name for name in names if name in given.only]
    given.only, left_out = chosen(wanted, 60 * given.minutes, given.seed, not given.no_bugs)
    _say_left_out(given, left_out)
    seconds = {name: least_seconds(name, not given.no_bugs) for name in wanted}
    if left_out:
        for_bugs = BUGS_SHARE_OF_FEW
        seconds = {name: min(s, LARGEST_PART * 60 * given.minutes) for name, s in seconds.items()}
    else:
        for_bugs = BUGS_SHARE
        part = 60 * given.minutes / sum(WEIGHTS.get(name, 1) for name in wanted)
        seconds = {name: max(s, part * WEIGHTS.get(name, 1)) for name, s in seconds.items()}
    works, total_seconds = _works(given, wanted), sum(seconds[name] for name in given.only)
    rows: list[Row] = []

    def run(name: str, of: float) -> None:
        """A row, in its part of the time that is left."""
        mine = max(0.0, end - clock()) * seconds[name] / of
        rows.append(works[name](Share(mine, 0.0 if given.no_bugs else for_bugs, clock)))

    for name in (name for name in given.only if name in works):
        run(name, total_seconds)
        total_seconds -= seconds[name]
    for name in [name for name in left_out if name in works]:
        left = end - clock()
        if left > seconds[name]:
            left_out.remove(name)
            run(name, left)
    print(f"\n{table(rows)}")
    under_load: tuple[str, ...] = ()
    if LOAD in given.only:
        left = end - clock()
        if left >= LOAD_LEAST or not rows:
            outcome = load.load(left)
            under_load = outcome.violations
            print(f"\n{load.table(outcome)}")
        else:
            print(f"\nThe load was left out: it takes {LOAD_LEAST:.0f} s, and there was less left.")
    for row in rows:
        for what, bugs in (
            ("not met in the time", row.bugs.unmet),
            ("left out", row.bugs.left_out),
        ):
            if bugs:
                print(f"{what}: {row.name}: {', '.join(bugs)}")
    total = sum(row.kills for row in rows)
    missed = [row.name for row in rows if row.bugs.missed]
    violations = sum(row.violations for row in rows) + len(under_load)
    _say_left_out(given, left_out)
    print(f"\n{total:,} kills, violations: {violations}; bugs missed on: {missed or 'none'}")
    return 1 if violations or missed else 0


def _say_left_out(given: argparse.Namespace, rows: list[str]) -> None:
    if rows:
        print(
            f"left out, as {given.minutes:g} minutes are too few for all: {', '.join(rows)}; "
            f"--seed {given.seed + 1} goes on with them",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
