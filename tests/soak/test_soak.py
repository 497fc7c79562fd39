"""The short form of the campaign. ``make soak`` is the long one.

``OFFSETLOG_SOAK_SECONDS`` sets how long each storage is tried (12)."""

from __future__ import annotations

import os

import pytest

from tests.soak.__main__ import Row, main, table
from tests.soak.campaign import campaign

SECONDS = float(os.environ.get("OFFSETLOG_SOAK_SECONDS", "12"))


@pytest.mark.parametrize("storage", ["local", "gcs"])
def test_processes_that_are_killed_frozen_and_lied_to_break_no_promise(storage):
    result = campaign(storage, 10**6, SECONDS)
    print(result._replace(story=""))
    assert not result.violations, "\n".join([*result.violations[:20], result.story])
    assert result.kills and result.operations > 20


def test_a_bug_that_is_planted_in_the_processes_is_caught():
    for seed in (1, 2, 3):
        result = campaign("local", 10**6, SECONDS, seed, "acknowledged before the fold")
        if result.violations:
            break
    else:
        raise AssertionError("not caught")
    assert "begins send" in result.story, "what is wrong is told with the operations that show it"


def test_the_command_prints_one_table(capsys):
    given = ["--minutes", "0.1", "--only", "local", "--no-simulation", "--no-bugs", "--no-load"]
    assert main(given) == 0
    lines = capsys.readouterr().out.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("storage"))
    assert lines[head + 1].split()[0] == "local"
    assert "violations: 0" in lines[-1]
    row = Row("x", 1, 2, 3, 4, "0/3", 1)
    assert table([row]).splitlines()[1].split() == ["x", "1", "2", "3", "4", "0/3", "1"]
