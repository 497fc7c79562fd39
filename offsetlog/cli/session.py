"""What one run of the program was told: the root, and how to speak.

Invariants:

1. The root comes from ``--root``, else from OFFSETLOG_ROOT, else from the settings file.
2. The settings file's ``[storage]`` goes with its root: where the root is given otherwise, it
   is left out, unless the file names no root at all.
3. Values of storage options are never shown.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from offsetlog.errors import InvalidRequestError

if TYPE_CHECKING:
    from offsetlog.client.log import Log

ROOT_VARIABLE = "OFFSETLOG_ROOT"


class RootAddress(NamedTuple):
    """A root, and what its filesystem must be told."""

    url: str
    storage: dict[str, Any]


class CliSession:
    """Filled by the global options while the command line is read."""

    def __init__(self) -> None:
        self.root: str | None = None
        self.config: str | None = None
        self.storage: dict[str, Any] = {}
        self.json = False
        self.debug = False
        self.single_writer = False
        self.broken_pipe_status = 0
        """A reader that had enough is no failure; a command that writes records says otherwise."""

    def place(self) -> RootAddress:
        """Where the log is."""
        from offsetlog.cli.config import load

        if self.root == "":
            raise InvalidRequestError("--root is empty.", "Give a path or a URL, or leave it out.")
        settings = load(self.config)
        given = self.root or os.environ.get(ROOT_VARIABLE) or None
        url = given or settings.root
        if not url:
            raise InvalidRequestError(
                "No root was given.",
                f'Use --root URL, set {ROOT_VARIABLE}, or write root = "..." in '
                "conf/offsetlog.toml.",
            )
        stored = settings.storage if given is None or settings.root is None else {}
        return RootAddress(url, {**stored, **self.storage})

    def open(self) -> Log:
        """The log; to be closed, or used in a ``with`` block."""
        import logging

        import offsetlog

        if not self.debug:
            # What libraries log of their own troubles reaches the user as our error, or not at all.
            logging.lastResort = None
        place = self.place()
        _check_names(place.storage)
        return offsetlog.open(place.url, single_writer=self.single_writer, **place.storage)


def _check_names(storage: dict[str, Any]) -> None:
    for name in ("url", "single_writer"):
        if name in storage:
            raise InvalidRequestError(
                f"{name!r} is no storage option.", "Use --root, and --single-writer."
            )


pass_session = click.make_pass_decorator(CliSession)
