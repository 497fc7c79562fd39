"""A list of names that a notebook shows as a table, and the parts of such tables."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar, overload


class Named(Protocol):
    @property
    def name(self) -> str: ...


Info = TypeVar("Info", bound=Named)


class NameList(Sequence[str], Generic[Info]):
    """Compares and prints as a list of its names; ``infos`` says more of each."""

    def __init__(self, infos: Sequence[Info]) -> None:
        self.infos = tuple(infos)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        return [info.name for info in self.infos][index]

    def __len__(self) -> int:
        return len(self.infos)

    def __iter__(self) -> Iterator[str]:
        return (info.name for info in self.infos)

    def __eq__(self, other: object) -> bool:
        return list(self) == (list(other) if isinstance(other, NameList) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


def bar(value: int, greatest: int, width: int = 120) -> str:
    """A small picture of a number beside the greatest one."""
    filled = 0 if greatest <= 0 else max(1 if value > 0 else 0, width * value // greatest)
    return (
        f'<div style="background:#e5e7eb;width:{width}px;height:10px">'
        f'<div style="background:#2563eb;width:{filled}px;height:10px"></div></div>'
    )


def table_head(*names: str) -> str:
    return "<tr>" + "".join(f"<th>{html.escape(name)}</th>" for name in names) + "</tr>"
