"""The short form of the campaign. ``make soak`` is the long one.

``OFFSETLOG_SOAK_SECONDS`` sets how long each storage is tried (12)."""

from __future__ import annotations

import os
from contextlib import nullcontext
from functools import partial

import pytest

from tests import planted
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


def test_planted_bugs_end_with_the_time_and_those_not_begun_are_named(capsys):
    looks = Looks()
    given = ["--minutes", "0.05", "--only", "simulated topics", "--seed", "2"]
    assert main(given, clock=looks) == 0
    bugs = len(mutations.MUTATIONS)
    assert looks.count < 20 + bugs, "each bug looks at the time once when it is over"
    said = capsys.readouterr().out
    assert "left out: simulated topics: " in said and "not met" not in said
    assert f"0/{bugs}" in said and "planted: " not in said


def test_a_bug_that_is_looked_for_in_vain_is_missed(monkeypatch, capsys):
    monkeypatch.setattr(soak, "MOST_HISTORIES", 1)
    harmless = planted.SIMULATED["simulated topics"]._replace(
        bugs={"harmless": None}, plant=lambda bug: nullcontext()
    )
    monkeypatch.setitem(planted.SIMULATED, "simulated topics", harmless)
    monkeypatch.setattr(planted, "PARTS", 400)
    assert main(["--minutes", "0.2", "--only", "simulated topics"], clock=Looks()) == 1
    assert "bugs missed on: ['simulated topics']" in capsys.readouterr().out


HISTORIES = [*planted.SIMULATED, *(generator.name for generator in soak.GENERATORS)]
SIX = ["--minutes", "6", "--only", *HISTORIES, "--seed"]


@pytest.fixture
def begun(monkeypatch):
    """The rows that were run, with the seconds that each got, in place of running them. A row
    takes as long as ``begun["takes"]`` says."""
    begun = {"now": 0.0, "takes": 1.0}

    def works(given, names):
        def run(share, name):
            begun[name] = share.left
            begun["now"] += begun["takes"] * share.left
            return Row(name, 1, 2, 0, 0, Bugs(), 0)

        return {name: partial(run, name=name) for name in names}

    monkeypatch.setattr(soak, "_works", works)
    return begun


def test_few_minutes_run_few_rows_and_the_next_seed_goes_on_with_the_others(begun, capsys):
    seen: list[str] = []
    for seed in range(1, 8):
        begun |= {"now": 0.0}
        assert main([*SIX, str(seed)], clock=lambda: begun["now"]) == 0
        rows = [name for name in HISTORIES if begun.pop(name, None)]
        left_out = [name for name in HISTORIES if name not in rows]
        begins, *_, ends, _, last = capsys.readouterr().out.splitlines()
        assert begins == ends and last.startswith("0 kills")
        assert begins.startswith("left out, as 6 minutes are too few for all: ")
        assert set(begins.partition(": ")[2].partition("; ")[0].split(", ")) == set(left_out)
        seen += rows
        if len(seen) >= len(HISTORIES):
            break
    assert set(seen) == set(HISTORIES), "each has its turn"
    assert len(seen) < 2 * len(HISTORIES)


def test_what_is_run_in_few_minutes_gets_enough_to_be_judged(begun):
    """As much as its histories and a fifth of its bugs' budgets take, or half of the minutes."""
    main([*SIX, "1"], clock=lambda: begun["now"])
    got = {name: seconds for name, seconds in begun.items() if name in HISTORIES}
    assert 0 < len(got) < len(HISTORIES)
    for name, seconds in got.items():
        assert seconds >= min(180, soak.least_seconds(name, True)) - 1, name


def test_rows_that_were_left_out_run_if_the_first_ones_leave_time_for_them(begun, capsys):
    begun |= {"takes": 0.01}
    main([*SIX, "1"], clock=lambda: begun["now"])
    assert set(HISTORIES) <= set(begun)
    *_, last = capsys.readouterr().out.partition("violations: 0")
    assert "left out" not in last


def test_many_minutes_leave_nothing_out():
    names = [*HISTORIES, *soak.SITES, soak.LOAD]
    assert soak.chosen(names, 60 * 240, 1, True) == (names, [])
    some, others = soak.chosen(names, 60 * 12, 1, True)
    assert some and others and sorted(some + others) == sorted(names)
