"""The settings file, ``offsetlog.toml``.

Invariants:

1. It is the one that ``--config`` names, else OFFSETLOG_CONFIG, else ./conf/offsetlog.toml,
   else ./offsetlog.toml. None is needed, but one that was named must exist.
2. An unknown key is an error.
3. No value of ``[storage]`` is ever shown.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from offsetlog.errors import InvalidRequestError
from offsetlog.values import did_you_mean

CONFIG_VARIABLE = "OFFSETLOG_CONFIG"
DEFAULT_PATHS = ("conf/offsetlog.toml", "offsetlog.toml")
KEYS = ("root", "storage")
MAX_BYTES = 1024 * 1024


class FileSettings(NamedTuple):
    root: str | None = None
    storage: dict[str, Any] = {}  # noqa: RUF012


def load(option: str | None) -> FileSettings:
    """The settings in force, for this value of ``--config``; empty ones if there is no file."""
    path = os.environ.get(CONFIG_VARIABLE) or None if option is None else option
    if path is not None:
        return read(Path(path))
    for default in DEFAULT_PATHS:
        if Path(default).is_file():
            return read(Path(default))
    return FileSettings()


def read(path: Path) -> FileSettings:
    import tomllib

    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidRequestError(
            f"The settings file {path} can't be read: {error.strerror}.",
            "Name another one with --config, or none.",
        ) from None
    if len(data) > MAX_BYTES:
        raise InvalidRequestError(f"The settings file {path} is larger than {MAX_BYTES} bytes.")
    try:
        content = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        # Python names the line and column, and does not repeat the text there.
        raise InvalidRequestError(
            f"The settings file {path} is not TOML: {error}.",
            'Write it as: root = "s3://bucket/log"',
        ) from None
    for key in content:
        if key not in KEYS:
            raise InvalidRequestError(
                f"The settings file {path} has the unknown key {key!r}.", did_you_mean(key, KEYS)
            )
    root, storage = content.get("root"), content.get("storage", {})
    if root is not None and (not isinstance(root, str) or not root):
        raise InvalidRequestError(f"In {path} root is not a string.", 'Write root = "/data/log".')
    if not isinstance(storage, dict):
        raise InvalidRequestError(
            f"In {path} storage is not a table.", "Write [storage] and its options below."
        )
    return FileSettings(root, storage)
