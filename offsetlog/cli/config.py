"""The settings file, ``offsetlog.toml``.

Invariants:

1. It is the one that ``--config`` names, else OFFSETLOG_CONFIG, else the first that counts of
   ./conf/offsetlog.toml, ./offsetlog.toml and ~/.config/offsetlog.toml. None is needed, but one
   that was named must exist.
2. A file of the current folder counts only where it and its folder are the user's own: a folder
   that somebody else filled says nothing about what this user wants. One that is passed over is
   named.
3. Such a file names no endpoint for credentials that are not its own.
4. An unknown key is an error, and no value of ``[storage]`` is ever shown.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from offsetlog.errors import InvalidRequestError
from offsetlog.filesystems import FILESYSTEMS
from offsetlog.values import did_you_mean

CONFIG_VARIABLE = "OFFSETLOG_CONFIG"
FOLDER_PATHS = ("conf/offsetlog.toml", "offsetlog.toml")
HOME_PATH = "~/.config/offsetlog.toml"
KEYS = ("root", "storage")
MAX_BYTES = 1024 * 1024
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_ENDPOINT = re.compile(r"endpoint|prox|account_host|base_url|(?:^|_)(?:ur[il]|host)$")
_CREDENTIALS = frozenset().union(*(fs.credential_options for fs in FILESYSTEMS))


class FileSettings(NamedTuple):
    root: str | None = None
    storage: dict[str, Any] = {}  # noqa: RUF012
    path: str | None = None
    """The file that they are from."""
    is_of_folder: bool = False
    """Nobody named it: it lay in the current folder."""


class PassedOver(NamedTuple):
    path: str
    why: str


class LoadedSettings(NamedTuple):
    settings: FileSettings
    passed_over: tuple[PassedOver, ...] = ()


def load(option: str | None) -> LoadedSettings:
    """The settings in force, for this value of ``--config``; empty ones if there is no file."""
    path = os.environ.get(CONFIG_VARIABLE) or None if option is None else option
    if path is not None:
        return LoadedSettings(read(path))
    passed_over: list[PassedOver] = []
    for default in FOLDER_PATHS:
        if os.path.lexists(default):
            why = why_not_own(default)
            if why is None:
                settings = read(default)
                return LoadedSettings(settings._replace(is_of_folder=True), tuple(passed_over))
            passed_over.append(PassedOver(default, why))
    home = os.path.expanduser(HOME_PATH)
    if os.path.isabs(home) and os.path.lexists(home):
        return LoadedSettings(read(home), tuple(passed_over))
    return LoadedSettings(FileSettings(), tuple(passed_over))


def why_not_own(path: str) -> str | None:
    """Why a file of the current folder does not count; None if it does."""
    parts = Path(path).parts
    folders = [".", *(os.path.join(*parts[:n]) for n in range(1, len(parts)))]
    try:
        for place in (*folders, path):
            about = os.stat(place)
            what = f"its folder {place}" if place != path else "it"
            if place == ".":
                what = "the current folder"
            if place == path and not stat.S_ISREG(about.st_mode):
                return "it is not a file"
            if about.st_uid != os.geteuid():
                return f"{what} belongs to another user"
            if about.st_mode & _OTHERS and not _is_private_group(about):
                return f"{what} can be written by other users"
    except OSError as error:
        return f"it can't be looked at: {error.strerror}"
    return None


def _is_private_group(about: os.stat_result) -> bool:
    """Whether only the user is in the group, who alone may write: many systems set files up so."""
    if about.st_mode & stat.S_IWOTH:
        return False
    try:
        import grp
        import pwd

        name = pwd.getpwuid(os.geteuid()).pw_name
        group = grp.getgrgid(about.st_gid)
    except (ImportError, KeyError):
        return False
    return group.gr_name == name and set(group.gr_mem) <= {name}


def read(path: str) -> FileSettings:
    import tomllib

    data = _bytes_of(path)
    if len(data) > MAX_BYTES:
        raise InvalidRequestError(f"The settings file {path} is larger than {MAX_BYTES} bytes.")
    try:
        content = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        # Python names the line and column, and does not repeat the text there.
        why = "it is nested too deep" if isinstance(error, RecursionError) else error
        raise InvalidRequestError(
            f"The settings file {path} is not TOML: {why}.",
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
    return FileSettings(root, storage, path)


def _bytes_of(path: str) -> bytes:
    """What the file holds; a pipe would be waited for."""
    why: object
    try:
        handle = os.open(path or ".", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            if stat.S_ISREG(os.fstat(handle).st_mode):
                return file.read(MAX_BYTES + 1)
        why = "it is not a file"
    except IsADirectoryError:
        why = "it is a folder"
    except OSError as error:
        why = error.strerror
    except ValueError as error:
        why = error
    raise InvalidRequestError(
        f"The settings file {path or '.'} can't be read: {why}.",
        "Name another one with --config, or none.",
    ) from None


# --- what a file of the current folder may say -------------------------------------------------


def check_folder_settings(url: str, settings: FileSettings, storage: Mapping[str, Any]) -> None:
    """Refuse to sign requests to an endpoint that a file of the current folder names with
    credentials of somebody else, such as the environment's, and a chain of filesystems."""
    if not settings.is_of_folder:
        return
    remedy = f"If you trust it, name it: --config {settings.path}"
    if settings.root is not None and url == settings.root and "::" in url:
        raise InvalidRequestError(
            f"{settings.path} of the current folder names a chain of filesystems as the root.",
            f"{remedy}.",
        )
    if storage.get("anon") is True or not _CREDENTIALS.isdisjoint(_names(storage)):
        return
    for name, value in settings.storage.items():
        if storage.get(name) != value:
            continue  # The command line said something else.
        endpoint = next((part for part in _names({name: value}) if _ENDPOINT.search(part)), None)
        if endpoint is not None:
            raise InvalidRequestError(
                f"{settings.path} of the current folder sets {endpoint!r} and no credentials: "
                "those of the environment are not sent to an endpoint that a folder names.",
                f"{remedy}; or set credentials, or anon = true, beside it.",
            )


def _names(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        yield str(name).lower()
        if isinstance(value, Mapping):
            yield from _names(value)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Mapping):
                    yield from _names(item)
