"""How far the planted bugs are: after how many histories each is found, from three seeds on.

``python -m tests.planted`` looks for every one, which takes some ten minutes of a processor, prints
the table and writes it into tests/README.md; ``--only NAME`` looks for those of one kind of
histories, or for one bug. With ``--check`` nothing is written: it ends with 1 if README.md names
other bugs, or one is too far.

Invariants:

1. A bug is found within a fifth of its budget from each of the seeds: what a seed stands for
   changes with the code, and the tests must find it still.
2. The tests look first at the seed that README.md states. That is a matter of speed: if it is
   stale, they look at all others within the budget.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from tests.generators.registry import GENERATORS, Generator
from tests.simulation import delta_mutations, group_mutations, mutations
from tests.simulation.run import (
    DELTA_KIND,
    GROUPS_KIND,
    KEYS_KIND,
    TABLE_KIND,
    TOPIC_KIND,
    plan_of,
    run,
)

FIRST_SEEDS = (1, 301, 601)
PARTS = 5
"""A bug is found within such a part of its budget."""
README = Path(__file__).with_name("README.md")
BEGINS, ENDS = "<!-- begin: python -m tests.planted -->", "<!-- end -->"
HEAD = ("histories", "planted", "budget", *(f"from {seed}" for seed in FIRST_SEEDS))

Distances = tuple[int | None, ...]
"""After how many histories it was found, from each of the first seeds on; None: not in a fifth of
its budget."""


class Histories(NamedTuple):
    """A kind of histories, and the bugs that are planted in them."""

    name: str
    budget: int
    """In so many of them the tests must find each bug at the latest."""
    bugs: tuple[str, ...]
    plant: Callable[[str], AbstractContextManager[None]]
    fails: Callable[[int], bool]
    """Whether the history of a seed finds something."""

    @property
    def margin(self) -> int:
        return self.budget // PARTS


class Simulated(NamedTuple):
    """A kind of simulated histories."""

    kind: str
    budget: int
    bugs: Mapping[str, object]
    plant: Callable[[str], AbstractContextManager[None]]


SIMULATED = {
    "simulated topics": Simulated(TOPIC_KIND, 200, mutations.MUTATIONS, mutations.planted),
    "simulated tables": Simulated(TABLE_KIND, 250, mutations.TABLE_MUTATIONS, mutations.planted),
    "simulated keys": Simulated(KEYS_KIND, 200, mutations.KEY_MUTATIONS, mutations.planted),
    "simulated groups": Simulated(
        GROUPS_KIND, 150, group_mutations.MUTATIONS, group_mutations.planted
    ),
    "simulated Delta": Simulated(
        DELTA_KIND, 120, delta_mutations.MUTATIONS, delta_mutations.planted
    ),
}


def _simulated(name: str, of: Simulated) -> Histories:
    def fails(seed: int) -> bool:
        return not run(plan_of(seed, of.kind)).sound

    return Histories(name, of.budget, tuple(of.bugs), of.plant, fails)


def _generated(generator: Generator) -> Histories:
    return Histories(
        generator.name,
        generator.budget,
        tuple(name for name, bug in generator.planted.items() if not bug.beside),
        lambda bug: generator.planted[bug].plant(),
        lambda seed: generator.history(seed).failure is not None,
    )


def all_histories() -> dict[str, Histories]:
    found = [
        *(_simulated(name, of) for name, of in SIMULATED.items()),
        *map(_generated, GENERATORS),
    ]
    return {histories.name: histories for histories in found}


def distance(histories: Histories, bug: str, first: int) -> int | None:
    with histories.plant(bug):
        for count in range(1, histories.margin + 1):
            if histories.fails(first + count - 1):
                return count
    return None


# --- what README.md states -------------------------------------------------------------------


def stated() -> dict[tuple[str, str], Distances]:
    """The distances by histories and bug."""
    lines = _around()[1].strip().splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {
        (name, bug): tuple(int(cell) if cell.isdigit() else None for cell in cells)
        for name, bug, _, *cells in rows
    }


def _around() -> tuple[str, str, str]:
    """README.md before the table, the table, and what comes after it."""
    before, begins, rest = README.read_text().partition(BEGINS)
    table, ends, after = rest.partition(ENDS)
    assert begins and ends, f"{README} has no lines {BEGINS} and {ENDS}"
    return before, table, after


def faults(table: Mapping[tuple[str, str], Distances]) -> list[str]:
    """What is wrong with these distances: other names than those of the bugs, or too far."""
    planted = [(h, bug) for h in all_histories().values() for bug in h.bugs]
    names = [(histories.name, bug) for histories, bug in planted]
    out = [f"{': '.join(name)}: is not in the table" for name in names if name not in table]
    out += [f"{': '.join(name)}: is planted no more" for name in table if name not in names]
    for histories, bug in planted:
        for first, count in zip(FIRST_SEEDS, table.get((histories.name, bug), ()), strict=False):
            if count is None or count > histories.margin:
                out.append(
                    f"{histories.name}: {bug}: not found in {histories.margin} histories from "
                    f"seed {first} on"
                )
    return out


def text(table: Mapping[tuple[str, str], Distances]) -> str:
    """The rows of the bugs that are planted, in their order."""
    rows = [
        (kind.name, bug, kind.budget, *(n or "none" for n in table[kind.name, bug]))
        for kind in all_histories().values()
        for bug in kind.bugs
        if (kind.name, bug) in table
    ]
    lines = [HEAD, ["---"] * len(HEAD), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def write(table: Mapping[tuple[str, str], Distances]) -> None:
    before, _, after = _around()
    README.write_text(f"{before}{BEGINS}\n{text(table)}\n{ENDS}{after}")


def seeds_for(histories: Histories, bug: str, limit: int) -> list[int]:
    """Where to look for a bug: first where it was found when the table was written."""
    known = stated().get((histories.name, bug), (None,))[0] or 1
    return [known, *(seed for seed in range(1, limit + 1) if seed != known)]


def main(arguments: list[str] | None = None) -> int:
    kinds = all_histories()
    places = [(kind, bug) for kind in kinds.values() for bug in kind.bugs]
    parser = argparse.ArgumentParser(prog="python -m tests.planted")
    parser.add_argument(
        "--only", nargs="*", choices=[*kinds, *(bug for _, bug in places)], metavar="NAME"
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    given = parser.parse_args(arguments)
    before, found = stated(), dict[tuple[str, str], Distances]()
    for kind, bug in places:
        if given.only is not None and not {kind.name, bug} & {*given.only}:
            continue
        began = time.process_time()
        counts = tuple(distance(kind, bug, first) for first in FIRST_SEEDS)
        found[kind.name, bug] = counts
        seconds = time.process_time() - began
        print(f"{kind.name}: {bug}: {counts}, {seconds:.1f} s", flush=True)
        if not given.check:
            write({**stated(), (kind.name, bug): counts})
    known = {**before, **found}
    print(f"\n{text(known)}\n")
    wrong = faults({**known} if given.check else stated())
    print("\n".join(wrong) or "Each is found within a fifth of its budget.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
