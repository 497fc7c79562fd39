"""Turns any error into one line and an exit status.

Invariants:

1. The line says what was wrong and what to do.
2. Status 2 is a user's mistake: the command cannot work as it was typed. 1 is a failure.
3. Our own warnings have the same shape; those of libraries are shown with ``--debug`` only.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import click

from offsetlog.cli.output import print_warning
from offsetlog.errors import InvalidRequestError, OffsetLogError, OffsetLogWarning

if TYPE_CHECKING:
    from offsetlog.cli.session import CliSession

OK = 0
FAILED = 1
MISTAKE = 2
INTERRUPTED = 130
TERMINATED = 143


def explain(error: BaseException) -> tuple[str, int]:
    """(message, exit status)."""
    if isinstance(error, InvalidRequestError):
        return str(error), MISTAKE
    if isinstance(error, OffsetLogError):
        return str(error), FAILED
    if isinstance(error, click.UsageError):
        return _explain_usage(error), MISTAKE
    if isinstance(error, click.ClickException):
        return error.format_message(), MISTAKE
    if isinstance(error, click.Abort):
        return "Nothing was done.", FAILED
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        path = f"{error.filename}: " if error.filename else ""
        return f"{path}{reason}.", FAILED
    return (
        f"An unexpected error: {type(error).__name__}: {error}. "
        "Run the command again with --debug to see where, and report it."
    ), FAILED


def _explain_usage(error: click.UsageError) -> str:
    text = error.format_message().rstrip()
    if not text.endswith((".", "?", "?)", "!")):
        text += "."
    if error.ctx is None:
        return text
    return f"{text} See '{error.ctx.command_path} --help'."


def install_warnings(session: CliSession) -> None:
    """Show our own warnings as one line each, and others with ``--debug`` only."""

    def show(message: Warning | str, category: type[Warning], filename: str, *rest: object) -> None:
        if issubclass(category, OffsetLogWarning) or session.debug:
            print_warning(message)

    warnings.simplefilter("default")
    warnings.showwarning = show  # type: ignore[assignment]
