"""What a help text shows can be typed: its examples run, and everything has one."""

from __future__ import annotations

import click
import pytest

from offsetlog.cli.main import COMMANDS, program
from tests.cli.shell import offsetlog, sh, shown


def _commands():
    """(path, command) of everything that can be typed."""
    found = [((), program)]
    with click.Context(program) as ctx:
        for name in COMMANDS:
            command = program.get_command(ctx, name)
            found.append(((name,), command))
            if isinstance(command, click.Group):
                found += [((name, sub), one) for sub, one in sorted(command.commands.items())]
    return found


ALL = _commands()


def _id(path):
    return " ".join(path) or "offsetlog"


@pytest.fixture
def prepared(orders):
    """What the examples take for granted: an orders topic, a group, and a file of lines."""
    sh("seq 300 | offsetlog produce orders --partition 0")
    sh("seq 300 | offsetlog produce orders --partition 1")
    sh("offsetlog consume orders --group billing")
    (orders / "access.log").write_text("GET /\nGET /favicon.ico\n")
    (orders / "keys.txt").write_text("ann\nbob\n")
    return orders


@pytest.mark.parametrize("path", [path for path, _ in ALL], ids=_id)
def test_help_has_examples_and_names_the_global_options(path):
    result = offsetlog(*path, "--help")
    assert (result.status, result.err) == (0, "")
    usage, _, examples = result.text.partition("Examples:\n")
    assert usage.startswith(f"Usage: {' '.join(('offsetlog', *path))} ")
    assert "--root" in usage and "--json" in usage
    lines = [line for line in examples.splitlines() if line.strip()]
    assert lines and all(line.startswith("  $ ") for line in lines)
    assert all(len(line) <= 100 for line in result.lines)


@pytest.mark.parametrize(
    ("path", "command"),
    [
        (path, command)
        for path, command in ALL
        if path not in ((), ("doctor",), ("jar",), ("demo",), ("page",))
    ],
    ids=lambda value: _id(value) if isinstance(value, tuple) else "",
)
def test_examples_run(path, command, prepared):
    for line in command.examples.splitlines():
        assert line.startswith("$ ")
        result = sh(line[2:].replace("/tmp/", f"{prepared}/"))
        told = " will be deleted" in result.err or " will be erased" in result.err
        told = told or " will be removed" in result.err
        assert result.status == 0 and (told or not result.err), f"{line}\n{shown(result)}"
        deletes = any(f" {word} " in line for word in ("topics delete", "records delete"))
        assert told == (deletes or " records erase " in line)


def test_the_first_examples_tell_one_story(place, monkeypatch):
    for line in program.examples.splitlines():
        result = sh(line[2:].replace("/data/", f"{place}/"))
        assert (result.status, result.err) == (0, ""), f"{line}\n{shown(result)}"
    assert len(result.lines) == 5


def test_help_is_the_page_of_the_bare_program():
    assert offsetlog().text == offsetlog("--help").text == offsetlog("-h").text
