"""Names of files under a root.

1. A legal name has parts between single slashes; no part is empty, ``.`` or ``..``, so no
   name leaves its root, on any filesystem.
2. A backslash separates on some filesystems and is refused on all; so are control characters.
3. ``.tmp-`` begins the names of temporaries. Nothing else may use it.
"""

from __future__ import annotations

import os
import re

from offsetlog.errors import InvalidRequestError

TEMPORARY = ".tmp-"
_PLAIN_NAME = re.compile(r"(?:[\w=-][\w=.-]*/)*[\w=-][\w=.-]*", re.ASCII)
"""What nearly all names look like, and surely a legal one: no part begins with a dot."""


def check_name(name: str) -> str:
    """The name of a file, or an error that says what is wrong with it."""
    for part in name.split("/"):
        if part in ("", ".", ".."):
            raise InvalidRequestError(
                f"{name!r} is no name of a file under the root.",
                "Names are relative, and their parts are not empty, '.' or '..'.",
            )
        if part.startswith(TEMPORARY):
            raise InvalidRequestError(
                f"{name!r} is no name of a file under the root.",
                f"Names that begin with {TEMPORARY!r} are kept for temporaries.",
            )
    if "\\" in name or not name.isprintable():
        raise InvalidRequestError(
            f"{name!r} is no name of a file under the root.",
            "Backslashes and characters that can't be printed are not allowed.",
        )
    return name


def check_folder(folder: str) -> str:
    """The name of a folder; the empty one is the root."""
    return check_name(folder) if folder and not _PLAIN_NAME.fullmatch(folder) else folder


def split(name: str) -> tuple[str, str]:
    """(folder, last part) of a legal name."""
    if not _PLAIN_NAME.fullmatch(name):
        check_name(name)
    folder, _, last = name.rpartition("/")
    return folder, last


def join(folder: str, last: str) -> str:
    return f"{folder}/{last}" if folder else last


def temporary_name() -> str:
    """A new name that no other process makes."""
    return f"{TEMPORARY}{os.getpid():x}-{os.urandom(8).hex()}"


def check_range(start: int | None, end: int | None) -> None:
    """A range is ``[start, end)``, or the last ``-start`` bytes."""
    if start is not None and start < 0 and end is not None:
        raise InvalidRequestError(
            f"A range that counts from the end ({start}) has no end of its own ({end})."
        )
    if end is not None and end < (start or 0):
        raise InvalidRequestError(f"The range [{start}, {end}) ends before it starts.")
