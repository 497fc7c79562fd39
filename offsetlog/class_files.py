"""What compiled Java classes name of others: read from their constant pools (JVMS 4.4)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

UTF8, CLASS, NAME_AND_TYPE = 1, 7, 12
MEMBERS = (9, 10, 11)
"""Of fields, methods, and methods of interfaces."""
LAYOUTS = {
    3: ">i", 4: ">f", 5: ">q", 6: ">d", CLASS: ">H", 8: ">H", 9: ">HH", 10: ">HH", 11: ">HH",
    NAME_AND_TYPE: ">HH", 15: ">BH", 16: ">H", 17: ">HH", 18: ">HH", 19: ">H", 20: ">H",
}  # fmt: skip
TAKE_TWO = (5, 6)


def named(classes: Iterable[bytes], prefixes: tuple[str, ...]) -> list[str]:
    """The classes below prefixes that others name, and their members: ``class``, or ``class name
    descriptor``."""
    out: set[str] = set()
    for data in classes:
        pool = _pool(data)

        def text(number: int, pool: dict[int, tuple[int, Any]] = pool) -> str:
            kind, value = pool[number]
            return value if kind == UTF8 else text(value[0])

        for kind, value in pool.values():
            if kind == CLASS:
                out.add(text(value[0]))
            elif kind in MEMBERS:
                name, descriptor = pool[value[1]][1]
                out.add(f"{text(value[0])} {text(name)} {text(descriptor)}")
    return sorted(name for name in out if name.startswith(prefixes))


def _pool(data: bytes) -> dict[int, tuple[int, Any]]:
    """The constants of a class by their numbers, each with its kind."""
    [count] = struct.unpack_from(">H", data, 8)
    out: dict[int, tuple[int, Any]] = {}
    at, number = 10, 1
    while number < count:
        kind = data[at]
        if kind == UTF8:
            [length] = struct.unpack_from(">H", data, at + 1)
            out[number] = (kind, data[at + 3 : at + 3 + length].decode(errors="replace"))
            at += 3 + length
        else:
            out[number] = (kind, struct.unpack_from(LAYOUTS[kind], data, at + 1))
            at += 1 + struct.calcsize(LAYOUTS[kind])
        number += 2 if kind in TAKE_TWO else 1
    return out
