"""All generators by name. A new one is a module and a line here: ``make test`` runs its short form,
and ``make soak`` runs it for its share of the time and gives it a row.

A module offers

- ``history(seed, folder)``: one random history. ``folder`` is empty and its own. It returns what it
  did: ``operations``, and under other names how often each thing was let go wrong. Whatever it
  raises is a violation, and the message tells what happened before.
- ``PLANTED``: bugs by name. While one is planted some history must raise, within a fifth of the
  generator's budget: ``python -m tests.planted --only NAME`` notes it in tests/README.md.
- if it likes, ``surroundings()``: a context manager with what histories of a long run have beside
  them; and ``told(counts)``: what they did, as text.
"""

from __future__ import annotations

import importlib
import io
import logging
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stderr
from pathlib import Path
from typing import NamedTuple

OPERATIONS = "operations"
WITH = " x "
"""Between the two names of a pair that is counted, which is nothing that was let go wrong."""


class Bug(NamedTuple):
    plant: Callable[[], AbstractContextManager[None]]
    beside: bool = False
    """Whether it is found only with what a long run has beside its histories."""


class Generator(NamedTuple):
    name: str
    module: str
    histories: int
    """Of the short form, which takes a few seconds."""
    budget: int = 60
    """In so many at the most each planted bug must be found; more where a history is cheap."""

    @property
    def planted(self) -> Mapping[str, Bug]:
        planted: Mapping[str, Bug] = importlib.import_module(self.module).PLANTED
        return planted

    def history(self, seed: int) -> Outcome:
        """One history. What it finds is in the outcome; nothing is raised."""
        run = importlib.import_module(self.module).history
        # Threads of a history that failed may still write.
        place = tempfile.TemporaryDirectory(
            prefix=f"offsetlog-{self.name}-", ignore_cleanup_errors=True
        )
        with place as folder, _quiet():
            try:
                return Outcome(seed, Counter(run(seed, Path(folder))), None)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001 - it is the history's finding
                return Outcome(seed, Counter(), error)

    def surroundings(self) -> AbstractContextManager[object]:
        """What a long run needs beside its histories."""
        made: Callable[[], AbstractContextManager[object]] = getattr(
            importlib.import_module(self.module), "surroundings", nullcontext
        )
        return made()

    def told(self, counts: Mapping[str, int]) -> str:
        """What histories did."""
        tell: Callable[[Mapping[str, int]], str] = getattr(
            importlib.import_module(self.module), "told", _told
        )
        return tell(counts)

    def again(self, seed: int) -> str:
        """The command that runs the history of a seed again."""
        return f"again: python -m tests.generators {self.name} --seed {seed}"


class Outcome(NamedTuple):
    seed: int
    counts: Counter[str]
    failure: BaseException | None


GENERATORS = (
    Generator("restarts", "tests.generators.restarts", 25, 400),
    Generator("power", "tests.generators.power", 3),
    Generator("interrupts", "tests.generators.interrupts", 3, 100),
    Generator("users' code", "tests.generators.users_code", 8),
    Generator("views", "tests.generators.views", 3, 250),
    Generator("sizes", "tests.generators.sizes", 5),
    Generator("contents", "tests.generators.contents", 4, 600),
    Generator("segments", "tests.generators.segments", 4, 100),
    Generator("input", "tests.generators.input", 4, 300),
    Generator("secrets", "tests.generators.secrets", 4),
    Generator("other tools", "tests.generators.other_tools", 3),
    Generator("copies", "tests.generators.copies", 2),
    Generator("deletions", "tests.generators.deletions", 10, 600),
    Generator("maintainers", "tests.generators.maintainers", 8, 300),
    Generator("roots", "tests.generators.roots", 5, 150),
    Generator("answers", "tests.generators.answers", 8, 400),
)
BY_NAME = {generator.name: generator for generator in GENERATORS}


def _told(counts: Mapping[str, int]) -> str:
    return "\n".join(f"{count:9,}  {what}" for what, count in sorted(counts.items()))


@contextmanager
def _quiet() -> Iterator[None]:
    """Histories are full of what the product warns about."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def first_failure(generator: Generator, seeds: Iterable[int]) -> tuple[int, Outcome | None]:
    """How many histories it took, and the failing one; None if all are sound."""
    count = 0
    for seed in seeds:
        count += 1
        outcome = generator.history(seed)
        if outcome.failure is not None:
            return count, outcome
    return count, None
