"""A list of names that a notebook shows as a table, and how such tables are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar, overload

from offsetlog.text import as_html


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


class Picture(str):
    """A cell that is HTML already; the text of all others is escaped."""

    __slots__ = ()


def bar(value: int, greatest: int, width: int = 120) -> Picture:
    """A small picture of a number beside the greatest one."""
    filled = 0 if greatest <= 0 else max(1 if value > 0 else 0, width * value // greatest)
    return Picture(
        f'<div style="background:#e5e7eb;width:{width}px;height:10px">'
        f'<div style="background:#2563eb;width:{filled}px;height:10px"></div></div>'
    )


def html_table(
    names: Sequence[str], rows: Iterable[Sequence[object]], total: Sequence[object] = ()
) -> str:
    """``total`` is a last row, of sums."""
    lines = [_row("th", names), *(_row("td", row) for row in rows)]
    return f"<table>{''.join(lines)}{_row('th', total) if total else ''}</table>"


def _row(tag: str, cells: Sequence[object]) -> str:
    return "<tr>" + "".join(f"<{tag}>{_cell(cell)}</{tag}>" for cell in cells) + "</tr>"


def _cell(value: object) -> str:
    match value:
        case Picture():
            return value
        case None:
            return "-"
        case float():
            return f"{value:,.1f}"
        case int():
            return f"{value:,}"
    return as_html(value)
