"""The notebooks run, and show what is saved in them."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.notebooks import NOTEBOOKS, execute, pictures, texts

MOST_BYTES = 300_000


def code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_they_are_all_there() -> None:
    assert [path.stem for path in NOTEBOOKS] == [
        "a_topic_as_a_table",
        "first_steps",
        "lag_in_pictures",
        "moving_a_query_from_kafka",
        "replay_by_resetting_group_offsets",
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_shows_what_is_saved(path: Path) -> None:
    saved, fresh = nbformat.read(path, as_version=4), execute(path)
    for before, after in zip(code(saved), code(fresh), strict=True):
        kinds = [[out.output_type for out in cell.outputs] for cell in (before, after)]
        assert kinds[0] == kinds[1], before.source
        assert len(pictures(before)) == len(pictures(after))
        if "exact" in before.metadata.get("tags", []):
            assert texts(before) == texts(after)
    for picture in (picture for cell in code(fresh) for picture in pictures(cell)):
        assert base64.b64decode(picture)[1:4] == b"PNG"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_saved_is_clean(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert path.stat().st_size < MOST_BYTES
    cells = code(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    shown = "".join(str(cell.outputs) for cell in cells)
    assert re.search(r"(?<![\w.:])/(?:tmp|home|root|usr|work|var)\b", shown) is None
    assert "Traceback" not in shown and "WARN" not in shown and "stderr" not in shown
    assert all(cell.outputs for cell in cells if "exact" in cell.metadata.get("tags", []))


def test_the_pictures_are_there() -> None:
    [path] = [path for path in NOTEBOOKS if path.stem == "lag_in_pictures"]
    cells = code(nbformat.read(path, as_version=4))
    assert sum(len(pictures(cell)) for cell in cells) == 2
