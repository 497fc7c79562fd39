"""The names that the plugin takes from the engine: each is there, and loaded when asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from offsetlog import engine


@pytest.mark.parametrize("name", engine.__all__)
def test_each_name_is_there(name: str) -> None:
    assert getattr(engine, name) is not None


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        engine.nothing  # noqa: B018


def test_the_engine_is_light_until_it_is_used() -> None:
    program = "import sys, offsetlog.engine; print('pyarrow' in sys.modules)"
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "False"
