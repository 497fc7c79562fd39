"""The entry point: which commands there are, and what the exit status says.

Invariants:

1. A command's module is imported when the command is used, and Arrow, fsspec and rich only by
   what needs them: ``offsetlog --help`` must feel instant.
2. Every failure ends as one line on stderr and an exit status: 2 for a user's mistake,
   1 for a failure, 130 for Ctrl-C. A reader of stdout that left is no failure.
3. Output that could not be written changes the exit status.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence

import click

from offsetlog import __version__
from offsetlog.cli import output
from offsetlog.cli.base import Command, CommandGroup
from offsetlog.cli.failures import (
    FAILED,
    INTERRUPTED,
    OK,
    TERMINATED,
    explain,
    install_warnings,
)
from offsetlog.cli.session import CliSession

PROGRAM = "offsetlog"
COMPLETE_VARIABLE = "_OFFSETLOG_COMPLETE"

COMMANDS = {
    "topics": "topics",
    "produce": "produce",
    "consume": "consume",
    "offsets": "offsets",
    "records": "records",
    "groups": "groups",
    "metrics": "metrics",
    "maintain": "maintain",
    "verify": "verify",
    "page": "page",
    "copy": "copy",
    "jar": "jar",
    "doctor": "doctor",
    "demo": "demo",
    "completion": "completion",
}
"""Command -> the module of this package that holds it, as ``command``."""


class Program(CommandGroup):
    """The program itself; its commands are imported one by one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        command = importlib.import_module(f"{__package__}.{module}").command
        assert isinstance(command, Command | CommandGroup)
        return command


@click.command(
    cls=Program,
    name=PROGRAM,
    examples="""
    $ export OFFSETLOG_ROOT=/data/log
    $ offsetlog topics create orders --partitions 3
    $ seq 1000 | offsetlog produce orders
    $ offsetlog consume orders --max 5
    """,
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def program(ctx: click.Context) -> None:
    """Kafka's topics, partitions and offsets on any filesystem, with no broker.

    A log is a folder, its root: a local path, or a URL such as s3://bucket/log. Name it with
    --root, OFFSETLOG_ROOT, or the key 'root' in a settings file: conf/offsetlog.toml,
    offsetlog.toml, or ~/.config/offsetlog.toml.
    """
    if ctx.invoked_subcommand is None:
        output.print_text(f"{ctx.get_help()}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    session = CliSession()
    completing = os.environ.get(COMPLETE_VARIABLE)
    if completing:
        from click.shell_completion import shell_complete

        return shell_complete(program, {"obj": session}, PROGRAM, COMPLETE_VARIABLE, completing)
    output.prepare()
    install_warnings(session)
    terminated = end_cleanly_on_sigterm()
    try:
        status = _run(list(sys.argv[1:] if arguments is None else arguments), session)
        output.flush()
        return status
    except KeyboardInterrupt as interrupt:
        return TERMINATED if isinstance(interrupt, Terminated) else INTERRUPTED
    except BrokenPipeError:
        output.discard_stdout()
        return session.broken_pipe_status
    except BaseException as error:  # noqa: BLE001 - the edge: nothing may end as a traceback
        text, status = explain(error)
        if session.debug:
            output.print_traceback()
        output.print_message(text)
        return status
    finally:
        terminated()


class Terminated(KeyboardInterrupt):
    """SIGTERM: the same cleanup as after Ctrl-C."""


def end_cleanly_on_sigterm() -> Callable[[], object]:
    """Let SIGTERM end a command as Ctrl-C does: what was printed is committed, and the group is
    left. Returns what puts things back."""

    def terminate(*_: object) -> None:
        raise Terminated

    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return lambda: None
    signal.signal(signal.SIGTERM, terminate)
    return lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _run(arguments: list[str], session: CliSession) -> int:
    try:
        with program.make_context(PROGRAM, arguments, obj=session) as ctx:
            program.invoke(ctx)
    except click.exceptions.Exit as end:
        return end.exit_code
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILED
    return OK
