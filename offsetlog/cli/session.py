"""The global options of one run: the root, and the form of the output.

Invariants:

1. The root comes from ``--root``, else from OFFSETLOG_ROOT, else from the settings file.
2. The settings file's ``[storage]`` belongs to its root: a root from elsewhere does not get it,
   unless the file names no root at all.
3. Values of storage options are never shown.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from offsetlog.cli.output import print_warning, show_logs
from offsetlog.errors import InvalidRequestError

if TYPE_CHECKING:
    from offsetlog.cli.config import LoadedSettings
    from offsetlog.client.log import Log

ROOT_VARIABLE = "OFFSETLOG_ROOT"


class RootAddress(NamedTuple):
    """A root, and the options of its filesystem."""

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
        """When the reader of stdout left. A command that writes records sets another."""

    def address(self) -> RootAddress:
        """Where the log is."""
        from offsetlog.cli.config import check_folder_settings

        if self.root == "":
            raise InvalidRequestError("--root is empty.", "Name a path or a URL, or leave it out.")
        settings, passed_over = self.settings()
        for path, why in passed_over:
            print_warning(f"the settings file {path} is passed over: {why}.")
        explicit = self.root or os.environ.get(ROOT_VARIABLE) or None
        url = explicit or settings.root
        if not url:
            raise InvalidRequestError(
                "No root was named.",
                f'Use --root URL, set {ROOT_VARIABLE}, or write root = "..." in '
                "conf/offsetlog.toml or ~/.config/offsetlog.toml.",
            )
        from_file = settings.storage if explicit is None or settings.root is None else {}
        storage = {**from_file, **self.storage}
        check_folder_settings(url, settings._replace(storage=from_file), storage)
        return RootAddress(url, storage)

    def settings(self) -> LoadedSettings:
        """What the settings file says, and which files were passed over."""
        from offsetlog.cli.config import load

        return load(self.config)

    def open(self) -> Log:
        """The log; close it, or use it in a ``with`` block."""
        import offsetlog

        # Troubles that libraries log reach the user as our error, or not at all.
        show_logs(self.debug)
        address = self.address()
        _check_names(address.storage)
        return offsetlog.open(address.url, single_writer=self.single_writer, **address.storage)


def _check_names(storage: dict[str, Any]) -> None:
    for name in ("url", "single_writer", "offsets_table"):
        if name in storage:
            raise InvalidRequestError(
                f"{name!r} is not a storage option.", "Use --root, and --single-writer."
            )


pass_session = click.make_pass_decorator(CliSession)
