"""The words of the bench: a figure, a case that measures some figures, and its rig.

1. ``ratio`` is always ``ours / peer``; ``better`` says which way it should go, and ``goal`` is
   the limit on that side.
2. A figure with a ``bound`` has no peer that runs: the bound stands in its place, and the goal
   is a ratio of 1.
3. A rig is made once for all rounds of a case and owns what it starts.
4. What is more than one number, such as a curve, goes into ``Setting.series`` beside the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeVar

Better = Literal["higher", "lower"]
T = TypeVar("T")
Series = dict[str, list[dict[str, float]]]
"""Tables by name: each row holds what was varied and what was measured."""


@dataclass(frozen=True)
class Figure:
    """One row of the results."""

    name: str
    unit: str
    peer_name: str
    goal: float
    better: Better
    bound: float | None = None
    about: str = ""

    def met(self, ratio: float) -> bool:
        """Whether a ratio lies on the right side of the goal."""
        return ratio >= self.goal if self.better == "higher" else ratio <= self.goal


def at_most(name: str, bound: float, unit: str, about: str = "") -> Figure:
    """A figure whose goal is a number of its own, such as six requests."""
    return Figure(name, unit, "bound", 1.0, "lower", bound, about)


def at_least(name: str, bound: float, unit: str, about: str = "") -> Figure:
    """A figure that must reach a number of its own, such as rows a second."""
    return Figure(name, unit, "bound", 1.0, "higher", bound, about)


class Rig(Protocol):
    """What one round calls. Both sides answer ``{figure name: value}``."""

    def ours(self) -> Mapping[str, float]:
        """One round of this library."""

    def peer(self) -> Mapping[str, float]:
        """One round of the floor or peer; figures with a bound are left out."""


@dataclass(frozen=True)
class Setting:
    """Where and how large a run is."""

    work: Path
    cache: Path
    short: bool = False
    series: Series = field(default_factory=dict)

    def pick(self, full: T, short: T) -> T:
        """The size for this run."""
        return short if self.short else full


@dataclass(frozen=True)
class Case:
    """Some figures that are measured together."""

    name: str
    figures: tuple[Figure, ...]
    rig: Callable[[Setting], AbstractContextManager[Rig]]
    rounds: int = 5
    warmups: int = 1
