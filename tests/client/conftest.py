"""Logs for the tests of consumers."""

from __future__ import annotations

import pytest

import offsetlog


@pytest.fixture(params=["local", "memory"])
def log(request, tmp_path):
    url = str(tmp_path / "log") if request.param == "local" else f"memory://{tmp_path.name}"
    with offsetlog.open(url) as log:
        yield log
