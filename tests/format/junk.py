"""Values that nobody wrote, put into what somebody did."""

from __future__ import annotations

import random
from typing import Any

JUNK: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2**31, 2**63 - 1, 2**63, -(2**70), 1.5, 1e308, "", "x", "NaN",
    "../../etc/passwd", "/etc/passwd", "a" * 5000, "\ud800", "\x00", [], {}, [[]], {"a": 1},
    [1, 2, 3], ["a"],
)  # fmt: skip


def mutated(rng: random.Random, value: Any) -> Any:
    """The same with one thing lost, doubled, renamed, or put in another's place."""
    if not (isinstance(value, list | dict) and value and rng.random() < 0.85):
        return rng.choice(JUNK)
    out: Any = dict(value) if isinstance(value, dict) else list(value)
    key = rng.choice(list(out)) if isinstance(out, dict) else rng.randrange(len(out))
    dice = rng.random()
    if dice < 0.1:
        del out[key]
    elif dice < 0.15 and isinstance(out, list):
        out.append(out[key])
    elif dice < 0.2 and isinstance(out, dict):
        out[rng.choice(["x", "..", "0", "-1", "a/b"])] = out[key]
    else:
        out[key] = mutated(rng, out[key])
    return out
