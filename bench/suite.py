"""What several cases of one run share: a Spark session, a broker, a data set.

1. It is made when it is first needed, and once.
2. It is closed when the run ends, in the reverse order, before the run's folder goes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Self, TypeVar

T = TypeVar("T")


class Suite:
    """Things by name, with the duty to close them."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}
        self._open = ExitStack()

    def once(self, name: str, make: Callable[[], AbstractContextManager[T]]) -> T:
        """What ``make`` gives, the same for all who ask for that name."""
        if name not in self._made:
            self._made[name] = self._open.enter_context(make())
        found: T = self._made[name]
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close all of it; who asks later gets new ones."""
        self._made.clear()
        self._open.close()


SUITE = Suite()
