"""A lock for fibers, in place of a thread's: who waits for it lets others run."""

from __future__ import annotations

from tests.simulation.world import Running, Violation, World


class Lock:
    """A reentrant lock between the fibers of one process, for code that expects threads."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._owner: Running | None = None
        self._depth = 0

    @property
    def free(self) -> bool:
        return self._owner is None

    def __enter__(self) -> None:
        me = self._world.current
        while self._owner is not None and self._owner is not me:
            if me is None:
                raise Violation("a lock is held by a fiber that is gone")
            me.blocked_on = self
            self._world.pause(me.process)
            me.blocked_on = None
        self._owner = me
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
