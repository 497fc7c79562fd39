"""The short form of the campaign. ``make soak`` is the long one.

``OFFSETLOG_SOAK_SECONDS`` sets how long each storage is tried (12)."""

from __future__ import annotations

import os

import pytest

from tests.simulation import mutations
from tests.soak import __main__ as soak
from tests.soak.__main__ import Bugs, Row, main, table
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
    given = ["--minutes", "0.1", "--only", "restarts", "local", "--no-bugs"]
    assert main(given) == 0
    lines = capsys.readouterr().out.splitlines()
    head = next(i for i, line in enumerate(lines) if "histories" in line.split()[:1])
    assert [line.split()[0] for line in lines[head + 1 : head + 3]] == ["restarts", "local"]
    assert "violations: 0" in lines[-1]
    row = Row("x", 1, 2, 3, 4, Bugs("abc"), 1)
    assert table([row]).splitlines()[1].split() == ["x", "1", "2", "3", "4", "0/3", "1"]


class Looks:
    """A clock that goes by half a second with each look, however slow the machine is."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> float:
        self.count += 1
        return 0.5 * self.count


def test_planted_bugs_end_with_the_time_and_those_not_met_are_named(capsys):
    looks = Looks()
    given = ["--minutes", "0.05", "--only", "simulated topics", "--seed", "2"]
    assert main(given, clock=looks) == 0
    bugs = len(mutations.MUTATIONS)
    assert looks.count < 10 + bugs, "each bug looks at the time once when it is over"
    said = capsys.readouterr().out
    assert "not met in the time: simulated topics: " in said
    assert f"/{bugs}" in said and "0 histories" in said


def test_a_bug_that_is_looked_for_in_vain_is_missed(monkeypatch, capsys):
    monkeypatch.setattr(soak, "MOST_HISTORIES", 1)
    monkeypatch.setattr(mutations, "MUTATIONS", {"harmless": list})
    assert main(["--minutes", "0.05", "--only", "simulated topics"], clock=Looks()) == 1
    assert "bugs missed on: ['simulated topics']" in capsys.readouterr().out
