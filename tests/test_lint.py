"""The checks of the code pass: style, types and layers, as ``make lint`` runs them."""

from __future__ import annotations

import subprocess

import pytest

from tests.servers.process import ROOT, program

CHECKS = {
    "types": ("mypy",),
    "layers": ("lint-imports",),
    "style": ("ruff", "check", "."),
    "format": ("ruff", "format", "--check", "."),
}


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_passes(check: str) -> None:
    name, *arguments = CHECKS[check]
    done = subprocess.run(
        [program(name), *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
