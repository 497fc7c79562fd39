"""Makes the tests' servers known to every test."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

ROOT = str(Path(__file__).resolve().parents[1])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

# A shell's background job ignores SIGINT and hands that down; tests of Ctrl-C need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.servers.fixtures"]


@pytest.fixture(params=["local", "memory"])
def log(request, tmp_path):
    """An open log, on the local disk and in memory."""
    import offsetlog

    url = str(tmp_path / "log") if request.param == "local" else f"memory://{tmp_path.name}"
    with offsetlog.open(url) as log:
        yield log
