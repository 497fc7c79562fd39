"""Commands with the global options, and with examples in their help.

Invariants:

1. A global option means the same before the command, after it, and between a group and its
   command; the last one wins.
2. Every command's help ends with examples, which the tests run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import click

from offsetlog.cli.params import ParamType
from offsetlog.cli.session import CliSession
from offsetlog.storage.open import parse_option
from offsetlog.values import did_you_mean

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def _store_in_session(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def store(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        session = ctx.find_object(CliSession)
        if session is None or value is None or value is False or value == ():
            return
        if name == "storage":
            session.storage.update(value)
        else:
            setattr(session, name, value)

    return store


class StorageOption(ParamType):
    name = "k=v"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Any]:
        if isinstance(value, tuple):
            return value
        key, equals, text = value.partition("=")
        if not equals or not key:
            # The text is not repeated: it may be a secret.
            self.fail("write a storage option as name=value.", param, ctx)
        return key, parse_option(text)


def global_options(own: list[click.Parameter]) -> list[click.Parameter]:
    """Those whose names the command does not use itself: ``topics create --config`` is its own."""
    own_names = {name for param in own for name in param.opts}

    def option(*names: str, **attributes: Any) -> click.Option:
        field = names[0].removeprefix("--").replace("-", "_")
        return click.Option(
            names, expose_value=False, callback=_store_in_session(field), **attributes
        )

    shared = [
        option("--root", metavar="URL", help="The log: a path or any fsspec URL."),
        option("--config", metavar="FILE", help="Settings, in place of the default files."),
        option(
            "--storage",
            type=StorageOption(),
            multiple=True,
            metavar="K=V",
            help="An option of the filesystem; repeatable.",
        ),
        option("--json", is_flag=True, help="Print JSON."),
        option("--debug", is_flag=True, help="Show the traceback of an error."),
        option(
            "--single-writer",
            is_flag=True,
            help="Write to a filesystem without put-if-absent: only one program may.",
        ),
    ]
    return [param for param in shared if not own_names & set(param.opts)]


class _WithGlobalOptions(click.Command):
    """Adds the global options, and examples to the help."""

    def __init__(self, *args: Any, examples: str = "", **attributes: Any) -> None:
        attributes.setdefault("context_settings", CONTEXT)
        super().__init__(*args, **attributes)
        self.examples = inspect.cleandoc(examples)
        self.global_options = global_options(self.params)
        self.params = [*self.params, *self.global_options]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_examples(self.examples, formatter)


class Command(_WithGlobalOptions):
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_options(self, ctx, formatter)


class CommandGroup(_WithGlobalOptions, click.Group):
    """A group of commands; without one it is an error of one line, not a page of help."""

    command_class = Command

    def __init__(self, *args: Any, **attributes: Any) -> None:
        attributes.setdefault("callback", _need_command)
        super().__init__(*args, invoke_without_command=True, **attributes)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            if name.startswith("-"):
                return super().resolve_command(ctx, args)
            hint = did_you_mean(name, self.list_commands(ctx))
            raise click.UsageError(f"There is no command {name!r}. {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        _write_options(self, ctx, formatter)


@click.pass_context
def _need_command(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        assert isinstance(ctx.command, CommandGroup)
        commands = ", ".join(ctx.command.list_commands(ctx))
        raise click.UsageError(f"A command is missing. Choose one of {commands}.", ctx)


def _write_options(
    command: _WithGlobalOptions, ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    own: list[tuple[str, str]] = []
    common: list[tuple[str, str]] = []
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
        if record is not None:
            (common if param in command.global_options else own).append(record)
    with formatter.section("Options"):
        formatter.write_dl(own)
    if ctx.parent is None:
        with formatter.section("Global options, before or after the command"):
            formatter.write_dl(common)
    else:
        with formatter.section("Global options"):
            formatter.write_text(
                "--root URL, --config FILE, --storage K=V, --json, --debug, --single-writer: "
                "see 'offsetlog --help'."
            )


def _write_examples(examples: str, formatter: click.HelpFormatter) -> None:
    """Unwrapped, so that a command line can be copied."""
    if examples:
        with formatter.section("Examples"):
            for line in examples.splitlines():
                formatter.write(f"{'':{formatter.current_indent}}{line}\n" if line else "\n")
