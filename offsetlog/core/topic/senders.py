"""What the chain remembers of each sender: its last number, and where it landed.

Invariants:

1. An ``SenderTable`` never changes; ``with_app`` gives a new one in a few microseconds, however
   many senders there are. It is layered: small dictionaries are copied, large ones shared.
2. The newest layer that knows a sender is right about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

_LAYER_LIMITS = (32, 1024)


class SenderState(NamedTuple):
    """The last number of a sender that counted."""

    seq: int
    entry: int
    time: int
    digest: str


class SenderTable:
    """An immutable map from sender to ``SenderState``."""

    __slots__ = ("_layers",)

    def __init__(self, layers: tuple[dict[str, SenderState], ...] = ({}, {}, {})) -> None:
        self._layers = layers

    @classmethod
    def of(cls, items: Iterable[tuple[str, SenderState]]) -> SenderTable:
        return cls(({}, {}, dict(items)))

    def get(self, app: str) -> SenderState | None:
        for layer in self._layers:
            state = layer.get(app)
            if state is not None:
                return state
        return None

    def with_app(self, app: str, state: SenderState) -> SenderTable:
        young, middle, old = self._layers
        young = {**young, app: state}
        if len(young) > _LAYER_LIMITS[0]:
            young, middle = {}, {**middle, **young}
            if len(middle) > _LAYER_LIMITS[1]:
                middle, old = {}, {**old, **middle}
        return SenderTable((young, middle, old))

    def without(self, apps: Iterable[str]) -> SenderTable:
        gone = set(apps)
        return SenderTable.of((app, state) for app, state in self.items() if app not in gone)

    def landed_since(self, floor: int) -> SenderTable:
        """Only those whose last entry is numbered ``floor`` or above."""
        return SenderTable.of((app, state) for app, state in self.items() if state.entry >= floor)

    def items(self) -> Iterator[tuple[str, SenderState]]:
        young, middle, old = self._layers
        return iter({**old, **middle, **young}.items())

    def __len__(self) -> int:
        young, middle, old = self._layers
        return len(old.keys() | middle.keys() | young.keys())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SenderTable) and dict(self.items()) == dict(other.items())

    __hash__ = None  # type: ignore[assignment]
