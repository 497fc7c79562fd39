"""Taking a rule of the code away for a while, by other values for names of its modules.

Only planted bugs do so, and the few numbers of the stored format that no process may choose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

Patch = tuple[Any, str, Any]
"""(module or class, name, value)"""


@contextmanager
def patched(patches: Iterable[Patch]) -> Iterator[None]:
    """Other values for names of modules and classes, for a while."""
    patches = tuple(patches)
    before = [(where, name, where.__dict__[name]) for where, name, _ in patches]
    try:
        for where, name, value in patches:
            setattr(where, name, value)
        yield
    finally:
        for where, name, value in before:
            setattr(where, name, value)
