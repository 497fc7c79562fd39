"""From whatever went wrong to one line and an exit status.

Invariants:

1. The line says what was wrong and what to do, and is one line whatever the message holds.
2. 2 is a user's mistake: the same command cannot work as it was typed. 1 is a failure.
3. Warnings of ours have the same shape; those of libraries are shown with ``--debug`` only.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

import click

from offsetlog.errors import InvalidRequestError, OffsetLogError, OffsetLogWarning

if TYPE_CHECKING:
    from offsetlog.cli.session import CliSession

OK = 0
FAILED = 1
MISTAKE = 2
INTERRUPTED = 130


def say(text: str) -> None:
    """One line on stderr."""
    line = f"offsetlog: {' '.join(text.split())}\n"
    try:
        sys.stderr.write(line)
        sys.stderr.flush()
    except (OSError, ValueError):
        pass  # Nobody reads stderr; the exit status still tells.


def explain(error: BaseException) -> tuple[str, int]:
    """(what to say, exit status)."""
    if isinstance(error, InvalidRequestError):
        return str(error), MISTAKE
    if isinstance(error, OffsetLogError):
        return str(error), FAILED
    if isinstance(error, click.UsageError):
        return _usage(error), MISTAKE
    if isinstance(error, click.ClickException):
        return error.format_message(), MISTAKE
    if isinstance(error, click.Abort):
        return "Nothing was done.", FAILED
    if isinstance(error, OSError):
        what = error.strerror or str(error)
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{what}.", FAILED
    return (
        f"Something failed that should not: {type(error).__name__}: {error}. "
        "Run it again with --debug to see where, and report it."
    ), FAILED


def _usage(error: click.UsageError) -> str:
    text = error.format_message().rstrip()
    if not text.endswith((".", "?", "?)", "!")):
        text += "."
    if error.ctx is None:
        return text
    return f"{text} See '{error.ctx.command_path} --help'."


def quiet_warnings(session: CliSession) -> None:
    """Show warnings of ours as one line each, and others only to those who debug."""

    def show(message: Warning | str, category: type[Warning], filename: str, *rest: object) -> None:
        if issubclass(category, OffsetLogWarning) or session.debug:
            say(f"warning: {message}")

    warnings.simplefilter("default")
    warnings.showwarning = show  # type: ignore[assignment]
