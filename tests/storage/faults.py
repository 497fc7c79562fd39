"""What can go wrong in a simulated history, and how often; all of it is drawn from the seed.

Invariants:

1. A ``Faults`` value says everything: the same value and seed give the same history.
2. Rates are chances for each storage call or step, so they are small.
"""

from __future__ import annotations

import random
from typing import NamedTuple


class Faults(NamedTuple):
    """Chances; 0 switches a fault off."""

    crash: float = 0.0
    """A process dies before or after any storage call; what it knew in memory is lost."""
    lost: float = 0.0
    """A put took effect and its answer is lost."""
    never: float = 0.0
    """A put is lost on its way; nobody is told."""
    late: float = 0.0
    """A put (or a delete) takes effect later, also long after its sender was told Unknown."""
    hidden: float = 0.0
    """The client library retries a lost answer itself, and meets its own file: Conflict."""
    refused: float = 0.0
    """A clear refusal, as from a full disk: nothing happened."""
    reads: float = 0.0
    """A read, listing or look fails."""
    slow: float = 0.0
    """A call takes seconds, before it takes effect or after, while its process goes on."""
    freeze: float = 0.0
    """A process stands still for a while, also for longer than the grace period."""
    jump: float = 0.0
    """Nothing happens for a long time."""
    caches: float = 0.0
    """A snapshot, leaf or hint goes missing, breaks, or comes back as it was before."""
    suspend: float = 0.0
    """A process sleeps for hours, as a laptop does, and its monotonic clock with it."""
    clock: float = 0.0
    """The wall clock of a process is put forward or back."""
    full: float = 0.0
    """The disk is full for a while: nothing can be written, by nobody."""
    torn: float = 0.0
    """A write that fails leaves a part of its file, where a store may do that: not of an entry."""
    unordered: float = 0.0
    """Deletes of one call happen in any order, and one that fails does not keep the others."""
    silent: float = 0.0
    """A server says nothing to a call for as long as one has; a write may take effect before that,
    later, or never. Only where the storage is remote."""


NO_FAULTS = Faults()
_HIGHEST = Faults(
    crash=0.006,
    lost=0.12,
    never=0.08,
    late=0.12,
    hidden=0.2,
    refused=0.07,
    reads=0.02,
    slow=0.03,
    freeze=0.03,
    jump=0.01,
    caches=0.02,
    suspend=0.004,
    clock=0.01,
    full=0.004,
    torn=0.1,
    unordered=0.8,
    silent=0.01,
)


def drawn(rng: random.Random) -> Faults:
    """Some histories have everything at once, most have a few kinds, some are calm."""
    # By chance of its own: what came later must not change the histories that were there.
    apart = random.Random(repr(rng.getstate()[1][:8]))
    share = rng.choice((0.0, 0.3, 0.5, 1.0))
    rates = (
        high * rng.uniform(0.2, 1.0) if rng.random() < share else 0.0 for high in _HIGHEST[:-1]
    )
    is_silent = apart.random() < share / 3
    return Faults(*rates, silent=_HIGHEST.silent * apart.uniform(0.2, 1.0) if is_silent else 0.0)


def without(faults: Faults, name: str) -> Faults:
    return faults._replace(**{name: 0.0})
