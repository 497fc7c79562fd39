"""The settings file, ``offsetlog.toml``.

Invariants:

1. It is the one that ``--config`` names, else OFFSETLOG_CONFIG, else ./conf/offsetlog.toml,
   else ./offsetlog.toml; there need not be one. One that was named must be there.
2. What it holds is known by name: a key that is not known is an error, not a silence.
3. No value of ``[storage]`` is ever shown.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from offsetlog.errors import InvalidRequestError
from offsetlog.values import did_you_mean

CONFIG_VARIABLE = "OFFSETLOG_CONFIG"
PLACES = ("conf/offsetlog.toml", "offsetlog.toml")
KEYS = ("root", "storage")
LARGEST = 1024 * 1024


class FileSettings(NamedTuple):
    root: str | None = None
    storage: dict[str, Any] = {}  # noqa: RUF012


def load(named: str | None) -> FileSettings:
    """What the settings file says; nothing if there is none."""
    path = os.environ.get(CONFIG_VARIABLE) or None if named is None else named
    if path is not None:
        return read(Path(path))
    for place in PLACES:
        if Path(place).is_file():
            return read(Path(place))
    return FileSettings()


def read(path: Path) -> FileSettings:
    import tomllib

    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise InvalidRequestError(
            f"The settings file {path} can't be read: {error.strerror}.",
            "Give another one with --config, or none.",
        ) from None
    if len(data) > LARGEST:
        raise InvalidRequestError(f"The settings file {path} is larger than {LARGEST} bytes.")
    try:
        told = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        # Python's words name the line and column; they don't repeat what is written there.
        raise InvalidRequestError(
            f"The settings file {path} is not TOML: {error}.",
            'Write it as: root = "s3://bucket/log"',
        ) from None
    for key in told:
        if key not in KEYS:
            raise InvalidRequestError(
                f"The settings file {path} has the unknown key {key!r}.", did_you_mean(key, KEYS)
            )
    root, storage = told.get("root"), told.get("storage", {})
    if root is not None and (not isinstance(root, str) or not root):
        raise InvalidRequestError(f"In {path} root is not a text.", 'Write root = "/data/log".')
    if not isinstance(storage, dict):
        raise InvalidRequestError(
            f"In {path} storage is not a table.", "Write [storage], and its options below it."
        )
    return FileSettings(root, storage)
