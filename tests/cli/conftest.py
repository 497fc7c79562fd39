"""Every test here runs in an empty folder with a root of its own, and no settings from outside."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """The empty folder; the root is ``log`` in it."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("OFFSETLOG_", "_OFFSETLOG"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OFFSETLOG_ROOT", str(tmp_path / "log"))
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


@pytest.fixture
def orders(place):
    """A topic with 3 partitions and 6 records: 0 to 5, two in each partition."""
    import offsetlog

    with offsetlog.open(str(place / "log")) as log:
        log.create_topic("orders", partitions=3)
        with log.producer() as producer:
            for n in range(6):
                producer.send(
                    "orders", f"v{n}".encode(), f"k{n}".encode(), partition=n % 3,
                    timestamp=1_700_000_000_000 + 1000 * n,
                )  # fmt: skip
    return place
