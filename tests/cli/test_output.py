"""On a terminal there are boxes, bars and questions; elsewhere plain text, all by one module."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from offsetlog.cli import output
from tests.cli.shell import PROGRAM, environment, offsetlog


def at_terminal(*words, answer=b"", **variables):
    """Run it with a terminal at all three ends; (status, what the screen showed)."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, *words], stdin=child, stdout=child, stderr=child,
        env=environment(TERM="xterm-256color", **variables), start_new_session=True,
    )  # fmt: skip
    os.close(child)
    if answer:
        os.write(parent, answer)
    shown = b""
    while True:
        try:
            data = os.read(parent, 65_536)
        except OSError:
            break
        if not data:
            break
        shown += data
    os.close(parent)
    return process.wait(20), shown.decode()


@pytest.mark.parametrize("colour", [True, False])
def test_tables_have_rules_and_colours_where_they_are_wanted(colour, orders):
    variables = {} if colour else {"NO_COLOR": "1"}
    status, shown = at_terminal("topics", "describe", "orders", **variables)
    assert status == 0 and "─" in shown and "PARTITION" in shown
    # Bold is no colour: it stays.
    assert "\x1b[1" in shown and ("36m" in shown) is colour
    plain = offsetlog("topics", "describe", "orders").text
    assert "─" not in plain and "\x1b" not in plain


def test_text_from_outside_is_not_markup(orders):
    entry = next((orders / "log" / "orders" / "_log").rglob("*1.parquet"))
    entry.rename(entry.with_name("[bold red]1.parquet"))
    status, shown = at_terminal("verify")
    assert status == 1 and "[bold red]1.parquet" in shown


@pytest.mark.parametrize(("answer", "gone"), [(b"n\n", False), (b"y\n", True)])
def test_a_purge_asks_who_is_there(answer, gone, orders):
    status, shown = at_terminal("topics", "delete", "orders", "--purge", answer=answer)
    asked = " ".join(shown.split())
    assert re.search(r"Remove orders, .* for good: 6 records, \d+ files, \d+ bytes", asked)
    assert f"bytes at file://{orders}/log/orders?" in asked.replace(" /", "/")
    assert status == (0 if gone else 1)
    assert (orders / "log" / "orders").exists() is not gone
    assert (offsetlog("topics", "list").lines[1:] == []) is gone


def test_long_work_shows_a_bar(orders):
    status, shown = at_terminal("verify", "orders")
    assert status == 0 and "Verifying" in shown


def test_who_types_is_told_how_to_end(orders):
    status, shown = at_terminal("produce", "orders", "--acks", answer=b"typed\n\x04")
    assert status == 0 and "Ctrl-D" in shown
    assert offsetlog("consume", "orders").text.count("typed\n") == 1


def test_only_one_module_writes():
    writes = re.compile(
        r"\bprint\(|click\.(echo|secho|confirm|prompt)|sys\.std(out|err)|traceback\."
    )
    modules = [path for path in Path(output.__file__).parent.glob("*.py") if path.stem != "output"]
    assert len(modules) > 10
    assert [path.name for path in modules if writes.search(path.read_text())] == []
