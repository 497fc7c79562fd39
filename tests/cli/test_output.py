"""On a terminal there are boxes, bars and questions; elsewhere plain text, all by one module."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

import offsetlog as library
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
    assert re.search(r"orders will be removed for good, .*: 6 records, \d+ files, \d+ bytes", asked)
    assert f"bytes at file://{orders}/log/orders. Remove it?" in asked.replace(" /", "/")
    assert status == (0 if gone else 1)
    assert (orders / "log" / "orders").exists() is not gone
    assert (offsetlog("topics", "list").lines[1:] == []) is gone


DELETIONS = [
    (["topics", "delete", "orders"], "6 records (about 24 bytes) in 3 partitions", "deleted"),
    (["topics", "delete", "orders", "--purge"], "all of its history: 6 records", "removed"),
    (["records", "delete", "orders", "--before", "0:1,2:-1"], "3 records (about 12 bytes) in 2 ",
     "deleted"),
    (["records", "erase", "orders", "--key", "k1", "--key", "none"],
     "1 record (about 4 bytes) in 1 partition", "erased for good"),
]  # fmt: skip


def left(orders):
    return offsetlog("topics", "list", "--json").text, offsetlog("consume", "orders").lines


@pytest.mark.parametrize(("words", "what", "how"), DELETIONS)
def test_what_cannot_be_undone_is_said_and_asked(words, what, how, orders):
    before = left(orders)
    for answer in (b"n\n", b"\n", b"\x04"):
        status, shown = at_terminal(*words, answer=answer)
        asked = " ".join(shown.split())
        assert status == 1 and what in asked and how in asked and "[y/N]" in asked, shown
        assert f"file://{orders}/log/orders" in asked.replace(" /", "/")
        assert left(orders) == before
    status, shown = at_terminal(*words, answer=b"y\n")
    assert status == 0 and left(orders) != before, shown


@pytest.mark.parametrize("words", [words for words, _, _ in DELETIONS])
def test_what_cannot_be_undone_asks_nobody_who_said_yes(words, orders):
    before = left(orders)
    status, shown = at_terminal(*words, "--yes", answer=b"n\n")
    assert status == 0 and "file://" in shown
    assert "[y/N]" not in shown and left(orders) != before


@pytest.mark.parametrize("more", [[], ["--json"]])
@pytest.mark.parametrize(("words", "what", "how"), DELETIONS)
def test_a_script_is_told_and_not_asked(words, what, how, more, orders):
    before = left(orders)
    result = offsetlog(*words, *more, stdin=b"n\n")
    assert result.status == 0 and result.err.count("\n") == 1
    assert what in result.err and how in result.err
    assert left(orders) != before


def test_a_wrong_deletion_is_refused_before_anybody_is_asked(orders):
    for words in (["records", "delete", "orders", "--before", "0:9"],
                  ["records", "delete", "orders", "--before", "7:0"],
                  ["records", "erase", "orders"], ["records", "erase", "none", "--key", "k"],
                  ["topics", "delete", "none"]):  # fmt: skip
        status, shown = at_terminal(*words, answer=b"y\n")
        assert status == 2 and "[y/N]" not in shown, shown


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


EVIL = "x\x1b[2J\x07\rbilling  Stable\n1\u202e\x85\ud800"


def hostile_group(name="billing", who=EVIL):
    """A worker whose name, client and host hold what moves a terminal, in a group of that."""
    from offsetlog.core.group.facts import Subscription
    from offsetlog.core.group.requests import JoinRequest

    subscription = Subscription(("orders",), "sticky", 45_000, who, who)
    with library.open(os.environ["OFFSETLOG_ROOT"]) as log:
        log.offsets_table.accept(JoinRequest(name, f"m{who}".replace("\ud800", ""), subscription))


@pytest.mark.parametrize("at_a_terminal", [True, False])
@pytest.mark.parametrize("words", [
    ["groups", "list"], ["groups", "describe", "billing", "--members"],
    ["groups", "describe", "billing"], ["groups", "delete", "billing", "--yes"],
    ["groups", "describe", "billing", "--members", "--json"],
])  # fmt: skip
def test_names_of_others_move_no_cursor(words, at_a_terminal, orders):
    hostile_group()
    if at_a_terminal:
        _, shown = at_terminal(*words, NO_COLOR="1")
        shown = re.sub(r"\x1b\[[0-9;]*m|\r\n", "", shown)
    else:
        result = offsetlog(*words)
        shown = (result.text + result.err).replace("\n", "")
    assert shown.isprintable(), shown
    assert "Traceback" not in shown and "unexpected" not in shown


def test_json_of_what_others_wrote_says_it_exactly(orders):
    hostile_group()
    out = offsetlog("groups", "describe", "billing", "--members", "--json").text
    assert json.loads(out)["members"][0]["client"] == EVIL
    assert out.replace("\n", "").isprintable()


def test_a_file_name_makes_no_line_of_its_own(orders):
    entry = next((orders / "log" / "orders" / "_log").rglob("*1.parquet"))
    entry.with_name("x\norders: nothing is wrong with it\x1b[31m.parquet").write_bytes(b"")
    result = offsetlog("verify")
    assert "\norders: nothing" not in result.text and "\x1b" not in result.text + result.err


def test_records_reach_a_terminal_as_text_and_a_pipe_as_they_are(orders):
    value = b"clear\x1b[2J \xff \xc2\x9b31m tab\t."
    offsetlog("produce", "orders", "--partition", "0", stdin=value + b"\n")
    words = ["consume", "orders", "--partition", "0", "--from", "2"]
    assert offsetlog(*words).out == value + b"\n"
    _, shown = at_terminal(*words, "--max", "1")
    assert "clear\\x1b[2J \\udcff \\x9b31m tab" in shown and "\x1b" not in shown
    shown = offsetlog(*words, "--json").text
    assert shown.rstrip("\n").isprintable()


def test_a_message_has_a_bounded_length(orders):
    for words in (
        ["topics", "describe", "x" * 100_000], ["consume", "orders", "--from", "y" * 100_000],
        ["topics", "create", "t", "--config", "z" * 100_000], ["w" * 100_000],
        ["topics", "list", "--" + "v" * 100_000],
        ["groups", "reset", "g", "--topic", "u" * 100_000],
    ):  # fmt: skip
        result = offsetlog(*words)
        assert result.status == 2 and len(result.err) < 5000, words[0]


def test_a_traceback_shows_no_secret(place):
    """Of what a library's exception says, with those that it came from."""
    script = """
import os, sys
from offsetlog.cli import main, session
from offsetlog.storage.open import open_store
class Login(Exception): pass
def broken(self):
    try:
        open_store("http://me:p4ss%2Fword-1@127.0.0.1:1/x", client_kwargs={"auth": "tok+en/42xyz"})
        raise Login("with p4ss/word-1 and b'tok+en/42xyz' and tok%2Ben%2F42xyz")
    except Login as error:
        raise RuntimeError("again with p4ss%2Fword-1\\x1b") from error
session.CliSession.open = broken
sys.exit(main.main(["topics", "list", "--debug"]))
"""
    done = subprocess.run(
        [PROGRAM[0], "-c", script], capture_output=True, text=True, env=environment(), check=False
    )
    assert "Login: with *** and b'***' and ***" in done.stderr
    assert "RuntimeError: again with ***\\x1b" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("offsetlog: An unexpected error: RuntimeError")
    shown = "\n".join(line for line in done.stderr.splitlines() if "open_store(" not in line
                      and "raise " not in line)  # fmt: skip
    assert "p4ss" not in shown and "42xyz" not in shown


def test_a_terminal_without_the_characters_gets_their_escapes(orders):
    hostile_group(who="Jürgen漢")
    done = subprocess.run(
        [*PROGRAM, "groups", "describe", "billing", "--members"], capture_output=True,
        env=environment(PYTHONIOENCODING="latin-1"), check=True,
    )  # fmt: skip
    assert "Jürgen\\u6f22" in done.stdout.decode("latin-1")
