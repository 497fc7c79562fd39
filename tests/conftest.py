"""What every test finds: its tier, the servers, an open log, and its turn among several processes.

A test is in one of two tiers: ``quick``, which ``make test`` runs, or ``rest`` (``tiers.py``).
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

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
from tests import tiers  # noqa: E402 - needs the path from above
from tests.spark_plugin import jvm  # noqa: E402
from tests.turns import Turns  # noqa: E402

PLANTED = ("tests/simulation/", "tests/generators/")
_RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID")
_turns = Turns(Path(tempfile.gettempdir()) / f"offsetlog-tests-{_RUN}") if _RUN else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=tiers.TIERS, help="only the tests of this tier")


def pytest_configure(config: pytest.Config) -> None:
    """PySpark before 4.2 does not close its sockets; ours that are left open, newer lines show."""
    if spark_line(version_of("pyspark") or "") in ("4.0", "4.1"):
        mute = "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"
        config.addinivalue_line("filterwarnings", mute)
    jvm.choose()


def pytest_sessionstart(session: pytest.Session) -> None:
    """What pytest itself says at its start is left out of a quiet run."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None:  # Only the process that shows the results has one.
        terminal.write_line(f"Spark's JVM is in {jvm.VARIABLE}={jvm.choose()}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    wanted = config.getoption("--tier")
    is_test = collection_path.suffix == ".py" and collection_path.is_relative_to(tiers.TESTS)
    return True if wanted and is_test and tiers.is_left_out(collection_path, wanted) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files with tests that are alone come first, then the slow ones: those that start a JVM, and
    those that look for planted bugs."""
    for item in items:
        if tiers.has_session(item.path):
            item.add_marker("spark")
    places: dict[Path, int] = {}
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        is_slow = "spark" in marks or item.nodeid.startswith(PLANTED)
        place = 0 if "alone" in marks else 1 if is_slow else 2
        places[item.path] = min(place, places.get(item.path, place))
    items.sort(key=lambda item: places[item.path])
    wanted = config.getoption("--tier")
    if wanted:
        left = [item for item in items if tiers.tier_of(item) != wanted]
        items[:] = [item for item in items if tiers.tier_of(item) == wanted]
        config.hook.pytest_deselected(items=left)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """In ``quick`` all tests of Spark's session run in one process, which starts one JVM."""
    if config.getoption("--tier") != tiers.QUICK:
        return None
    from xdist.scheduler import LoadFileScheduling

    class OneSession(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            if tiers.has_session(Path(ROOT, file)):
                return "spark"
            # Of planted bugs each is looked for by itself, and some take long.
            return nodeid if file.startswith(PLANTED) else file

    return OneSession(config, log)


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


def _root_in(node: pytest.Item) -> tuple[str, ...]:
    mark = node.get_closest_marker("root_in")
    return mark.args if mark else ("local",)


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    places = _root_in(metafunc.definition)
    if len(places) > 1 and "root" in metafunc.fixturenames:
        metafunc.parametrize("root", places, indirect=True)


@pytest.fixture
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """Where a test's log lies, and nothing is yet: on the local disk, if the mark ``root_in`` names
    no other places."""
    place = getattr(request, "param", _root_in(request.node)[0])
    return tmp_path / "log" if place == "local" else f"memory://{tmp_path.name}"


@pytest.fixture
def log(root: Path | str) -> Iterator[Any]:
    """An open log at the root."""
    import offsetlog

    with offsetlog.open(str(root)) as log:
        yield log


@pytest.fixture
def orders(log: Any) -> Any:
    """The topic ``orders`` in the log, with two partitions and no record."""
    return log.create_topic("orders", partitions=2)
