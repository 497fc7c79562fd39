"""Breadth first through all states of a model; the first broken promise as a story."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from tests.model.protocol import Broken, Model, World


class Explored(NamedTuple):
    states: int
    actions: int
    deepest: int
    story: tuple[str, ...]
    """How a promise came to be broken; empty if none was."""


def explore(model: Model, most: int = 2_000_000) -> Explored:
    start = model.start()
    came: dict[World, tuple[World, str] | None] = {start: None}
    depth = {start: 0}
    queue = deque([start])
    actions = deepest = 0
    while queue:
        world = queue.popleft()
        deepest = max(deepest, depth[world])
        said = ""
        try:
            for said, after in model.next(world):
                actions += 1
                if after in came:
                    continue
                came[after] = (world, said)
                model.check(world, after)
                depth[after] = depth[world] + 1
                queue.append(after)
                if len(came) > most:
                    raise AssertionError(f"more than {most} states")
        except Broken as broken:
            last = after if said and came.get(after) == (world, said) else world
            return Explored(len(came), actions, deepest + 1, _story(came, last, str(broken)))
        del depth[world]
    return Explored(len(came), actions, deepest, ())


def _story(came: dict[World, tuple[World, str] | None], world: World, why: str) -> tuple[str, ...]:
    lines = [f"PROMISE {why}"]
    step = came[world]
    while step is not None:
        lines.append(step[1])
        step = came[step[0]]
    return tuple(f"{n:3}. {line}" for n, line in enumerate(reversed(lines), 1))
