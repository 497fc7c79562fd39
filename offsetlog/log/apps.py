"""What the chain remembers of each sender: its last number, and where it landed.

Invariants:

1. An ``AppTable`` never changes; ``with_app`` gives a new one in a few microseconds, however
   many senders there are. It is layered: small dictionaries are copied, large ones shared.
2. The newest layer that knows a sender is right about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

_LAYER_LIMITS = (32, 1024)


class AppState(NamedTuple):
    """The last number of a sender that counted."""

    seq: int
    entry: int
    time: int
    digest: str


class AppTable:
    """An immutable map from sender to ``AppState``."""

    __slots__ = ("_layers",)

    def __init__(self, layers: tuple[dict[str, AppState], ...] = ({}, {}, {})) -> None:
        self._layers = layers

    @classmethod
    def of(cls, items: Iterable[tuple[str, AppState]]) -> AppTable:
        return cls(({}, {}, dict(items)))

    def get(self, app: str) -> AppState | None:
        for layer in self._layers:
            found = layer.get(app)
            if found is not None:
                return found
        return None

    def with_app(self, app: str, state: AppState) -> AppTable:
        young, middle, old = self._layers
        young = {**young, app: state}
        if len(young) > _LAYER_LIMITS[0]:
            young, middle = {}, {**middle, **young}
            if len(middle) > _LAYER_LIMITS[1]:
                middle, old = {}, {**old, **middle}
        return AppTable((young, middle, old))

    def without(self, apps: Iterable[str]) -> AppTable:
        gone = set(apps)
        return AppTable.of((app, state) for app, state in self.items() if app not in gone)

    def landed_since(self, floor: int) -> AppTable:
        """Only those whose last entry is numbered ``floor`` or above."""
        return AppTable.of((app, state) for app, state in self.items() if state.entry >= floor)

    def items(self) -> Iterator[tuple[str, AppState]]:
        young, middle, old = self._layers
        return iter({**old, **middle, **young}.items())

    def __len__(self) -> int:
        young, middle, old = self._layers
        return len(old.keys() | middle.keys() | young.keys())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AppTable) and dict(self.items()) == dict(other.items())

    __hash__ = None  # type: ignore[assignment]
