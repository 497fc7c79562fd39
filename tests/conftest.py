"""What every test finds: the servers, an open log, and its turn among several processes."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

ROOT = str(Path(__file__).resolve().parents[1])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

# A shell's background job ignores SIGINT and hands that down; tests of Ctrl-C need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.servers.fixtures"]

from offsetlog import redact  # noqa: E402
from offsetlog.environment import spark_line, version_of  # noqa: E402
from tests.turns import Turns  # noqa: E402 - needs the path from above

SPARK = Path(__file__).parent / "spark_plugin"
WITHOUT_SPARK = SPARK / "unit"
_RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID")
_turns = Turns(Path(tempfile.gettempdir()) / f"offsetlog-tests-{_RUN}") if _RUN else None


def pytest_configure(config: pytest.Config) -> None:
    """PySpark before 4.2 does not close its sockets; ours that are left open, newer lines show."""
    if spark_line(version_of("pyspark") or "") in ("4.0", "4.1"):
        mute = "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"
        config.addinivalue_line("filterwarnings", mute)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with tests that are alone come first, then those that start a JVM, which are slow."""
    for item in items:
        if item.path.is_relative_to(SPARK) and not item.path.is_relative_to(WITHOUT_SPARK):
            item.add_marker("spark")
    places: dict[Path, int] = {}
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        place = 0 if "alone" in marks else 1 if "spark" in marks else 2
        places[item.path] = min(place, places.get(item.path, place))
    items.sort(key=lambda item: places[item.path])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if _turns is None:
        return (yield)
    with _turns.turn(alone=item.get_closest_marker("alone") is not None):
        return (yield)


def pytest_sessionfinish() -> None:
    if _turns is not None:
        _turns.forget()


@pytest.fixture(autouse=True)
def no_secrets_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test calls a secret may be a plain word of the next one."""
    monkeypatch.setattr("offsetlog.redact._known", redact._Known())


@pytest.fixture(params=["local", "memory"])
def log(request, tmp_path):
    """An open log, on the local disk and in memory."""
    import offsetlog

    url = str(tmp_path / "log") if request.param == "local" else f"memory://{tmp_path.name}"
    with offsetlog.open(url) as log:
        yield log
