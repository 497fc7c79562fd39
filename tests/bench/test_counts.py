"""Counts are stable where times are not: requests and bytes of the short figures do not grow.

``counts.json`` holds the most that each may be. One that fell may be lowered there; one that
grew needs a reason, since every request is billed by an object store.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.figure import Setting
from bench.figures import cases
from bench.runner import run_case

LIMITS: dict[str, dict[str, float]] = json.loads(
    Path(__file__).with_name("counts.json").read_text()
)


@pytest.mark.alone
@pytest.mark.parametrize("name", sorted(LIMITS))
def test_requests_and_bytes_do_not_grow(name: str, tmp_path: Path) -> None:
    (case,) = [case for case in cases() if case.name == name]
    rows = {row["name"]: row for row in run_case(case, Setting(tmp_path, tmp_path, True), rounds=1)}
    grown = {
        figure: (rows[figure]["ours"], most)
        for figure, most in LIMITS[name].items()
        if rows[figure]["ours"] > most
    }
    assert not grown, f"figure: (now, the most that it may be): {grown}"


def test_every_count_has_a_limit() -> None:
    counted = {
        figure.name
        for case in cases()
        for figure in case.figures
        if figure.unit in ("requests", "bytes") and case.name in LIMITS
    }
    assert counted == {figure for limits in LIMITS.values() for figure in limits}
