"""``python -m tests.generators NAME --seeds 1:500``: histories of a generator, and what they did.
A failure prints its seed and trace; ``--seed N`` runs it again, ``--planted BUG`` with a bug."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from contextlib import nullcontext, suppress

from tests.generators.registry import BY_NAME
from tests.simulation.run import seed_range


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.generators")
    parser.add_argument("name", choices=list(BY_NAME))
    parser.add_argument("--seeds", type=seed_range, default=range(1, 101), metavar="FIRST:LAST")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--minutes", type=float, help="until this time is over, if sooner")
    parser.add_argument("--planted", default="", help="with this bug")
    parser.add_argument("--alone", action="store_true", help="without Spark beside them")
    parser.add_argument("--failures", type=int, default=3, help="stop after so many")
    given = parser.parse_args(arguments)
    generator = BY_NAME[given.name]
    seeds = given.seeds if given.seed is None else range(given.seed, given.seed + 1)
    began, done, total, failures = time.monotonic(), 0, Counter[str](), 0
    planted = generator.planted[given.planted].plant() if given.planted else nullcontext()
    beside = nullcontext() if given.alone else generator.surroundings()
    # Ctrl-C ends it, and what was met until then is told.
    with planted, beside, suppress(KeyboardInterrupt):
        for seed in seeds:
            outcome = generator.history(seed)
            done += 1
            total.update(outcome.counts)
            if outcome.failure is not None:
                failures += 1
                print(f"seed {seed}:", *traceback.format_exception(outcome.failure), sep="\n")
                print(generator.again(seed), flush=True)
            spent = time.monotonic() - began
            if failures >= given.failures or (given.minutes and spent > 60 * given.minutes):
                break
    print(generator.told(total))
    print(f"{done} histories in {time.monotonic() - began:.0f} s, violations: {failures}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
