"""The runner itself: interleaving, medians, the fixed shape of results.json."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench import figures
from bench.__main__ import main
from bench.figure import Case, Figure, Rig, Setting, at_most
from bench.results import Row, load, merge, quantile, save
from bench.runner import run_case

SHAPE = {
    "name": str,
    "ours": float,
    "peer": float,
    "peer_name": str,
    "unit": str,
    "ratio": float,
    "better": str,
    "spread": float,
    "goal": float,
    "met": bool,
}
FIGURES = (
    Figure("trivial_rate", "things/s", "a slower one", 2.0, "higher"),
    at_most("trivial_requests", 6, "requests"),
)


class _Trivial:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def ours(self) -> dict[str, float]:
        self.calls.append("ours")
        return {"trivial_rate": 30.0 + len(self.calls), "trivial_requests": 3.0}

    def peer(self) -> dict[str, float]:
        self.calls.append("peer")
        return {"trivial_rate": 10.0}


RIG = _Trivial()


@contextmanager
def _rig(setting: Setting) -> Iterator[Rig]:
    assert setting.work.is_dir()
    RIG.calls.clear()
    yield RIG


CASE = Case("trivial", FIGURES, _rig)


@contextmanager
def _broken(setting: Setting) -> Iterator[Rig]:
    raise RuntimeError("the peer is not here")
    yield RIG


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Case("broken", (at_most("broken_requests", 1, "requests"),), _broken)
    monkeypatch.setattr(figures, "cases", lambda: (broken, CASE))


def _run(tmp_path: Path, *arguments: str) -> tuple[int, list[Row]]:
    target = tmp_path / "results.json"
    code = main([*arguments, "--short", "--results", str(target), "--cache", str(tmp_path / "c")])
    return code, load(target)


def test_results_have_the_fixed_shape(tmp_path: Path, registry: None) -> None:
    code, rows = _run(tmp_path, "--only", "trivial")
    assert code == 0
    assert [row["name"] for row in rows] == ["trivial_rate", "trivial_requests"]
    for row in json.loads((tmp_path / "results.json").read_text()):
        assert {key: type(value) for key, value in row.items()} == SHAPE | {
            "goal": type(row["goal"])
        }
        assert isinstance(row["goal"], (int, float))
    assert rows[0]["met"] and rows[0]["ratio"] == pytest.approx(rows[0]["ours"] / 10.0)
    assert rows[1]["met"] and rows[1]["ratio"] == 0.5 and rows[1]["peer"] == 6


def test_rounds_take_turns_after_a_warm_up(tmp_path: Path) -> None:
    rows = run_case(CASE, Setting(tmp_path, tmp_path))
    assert RIG.calls == ["ours", "peer"] * 6
    # The warm-up's 31 is not among them: 33, 35, 37, 39, 41.
    assert rows[0]["ours"] == 37.0
    assert rows[0]["spread"] == pytest.approx(4 / 37, abs=1e-3)


def test_a_figure_is_found_by_its_own_name(tmp_path: Path, registry: None) -> None:
    code, rows = _run(tmp_path, "--only", "trivial_requests")
    assert (code, len(rows)) == (0, 2)
    assert _run(tmp_path, "--only", "no-such-figure")[0] == 2


def test_one_figure_that_cannot_run_does_not_cost_the_others(
    tmp_path: Path, registry: None
) -> None:
    code, rows = _run(tmp_path)
    assert code == 1
    assert [row["name"] for row in rows] == ["trivial_rate", "trivial_requests"]


def test_a_run_keeps_the_rows_that_it_did_not_measure(tmp_path: Path) -> None:
    (old,) = run_case(Case("one", FIGURES[:1], _rig), Setting(tmp_path, tmp_path), rounds=1)
    other: Row = {**old, "name": "other", "ours": 1.0}
    gone: Row = {**old, "name": "gone"}
    target = tmp_path / "results.json"
    save(target, [other, old, gone])
    fresh: Row = {**old, "ours": 99.0}
    save(target, merge(load(target), [fresh], ["trivial_rate", "other"]))
    assert [(row["name"], row["ours"]) for row in load(target)] == [
        ("trivial_rate", 99.0),
        ("other", 1.0),
    ]


@pytest.mark.parametrize(
    ("better", "ratio", "met"),
    [("higher", 1.0, True), ("higher", 0.99, False), ("lower", 1.0, True), ("lower", 1.01, False)],
)
def test_a_goal_has_a_direction(better: str, ratio: float, met: bool) -> None:
    figure = Figure("f", "ms", "p", 1.0, "higher" if better == "higher" else "lower")
    assert figure.met(ratio) is met


def test_quantiles_lie_between_neighbours() -> None:
    assert quantile([4, 1, 3, 2], 0.5) == 2.5
    assert quantile([7], 0.99) == 7


def test_every_registered_figure_has_its_own_name() -> None:
    names = figures.figure_names()
    assert names and len(names) == len(set(names))
    for case in figures.cases():
        assert case.rounds >= 5, case.name
