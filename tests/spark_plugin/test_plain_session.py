"""``offsetlog.spark.register``, where Spark's own Python, ``python3`` of the PATH, has none of
what is needed: as in a notebook or an IDE that runs a virtual environment's Python."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.spark_plugin.drivers import drive


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("plain")
    empty = place / "empty"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(empty)], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{empty / 'bin'}:/usr/bin:/bin")
        patch.setenv("EMPTY_PYTHON", str(empty / "bin" / "python3"))
        return drive("plain_session", place, chosen=False)


def test_a_local_session_gets_this_python(told: dict[str, Any]) -> None:
    assert (told["rows"], told["topics"], told["counted"]) == (20, 1, 3)


def test_a_chosen_python_that_lacks_it_is_named(told: dict[str, Any]) -> None:
    assert "empty/bin/python3' has no offsetlog" in told["refused"]
    assert f"Set PYSPARK_PYTHON to one that has it, such as {sys.executable}" in told["refused"]
