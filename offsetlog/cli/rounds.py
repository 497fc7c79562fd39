"""``--every``: rounds of a command, until it is ended.

Invariants:

1. A round that fails is a warning of one line, and does not end the command. A user's mistake in
   the first round does: it can't get better.
2. Rounds begin at fixed times; one that takes longer than that is followed by the next at once,
   and those that were missed are not made up for.
3. Ctrl-C and SIGTERM end it as they end every command: what is open is closed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from offsetlog.cli.failures import explain
from offsetlog.cli.output import print_warning
from offsetlog.cli.params import Duration
from offsetlog.errors import InvalidRequestError

LEAST_MS = 1000


class Every(Duration):
    """The time from the beginning of a round to that of the next."""

    def parse(self, text: str) -> int:
        period = super().parse(text)
        if period < LEAST_MS:
            raise ValueError(f"{text!r} is too short: a second is the least.")
        return period


def every_option(text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option ``--every``."""
    return click.option("--every", type=Every(), metavar="DURATION", help=text)


def repeat(work: Callable[[], None], every_ms: int | None) -> None:
    """Once, or with ``every_ms`` again and again."""
    if every_ms is None:
        return work()
    is_first = True
    begin = time.monotonic()
    while True:
        try:
            work()
        except BrokenPipeError:
            raise  # Nobody reads what it prints.
        except Exception as error:  # noqa: BLE001 - the next round may go well
            if is_first and isinstance(error, InvalidRequestError | click.ClickException):
                raise
            print_warning(f"this round failed: {explain(error)[0]}")
        is_first = False
        passed = time.monotonic() - begin
        begin += max(every_ms / 1000, passed)
        time.sleep(max(0.0, begin - time.monotonic()))
