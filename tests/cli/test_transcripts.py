"""Sessions at the terminal, written down: each command shows what its transcript says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.shell import matches, read_transcript, sh, shown

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path, place):
    steps = read_transcript(path.read_text())
    assert len(steps) > 2
    for step in steps:
        found = shown(sh(step.command)).replace(str(place), "HERE")
        assert matches(step.expected, found), (
            f"{path.name}: $ {step.command}\n--- expected\n{step.expected}--- found\n{found}"
        )
