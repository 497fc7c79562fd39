"""The suite that every storage here passes, for filesystems of your own.

A test of your own::

    from offsetlog.testing import assert_store

    def test_my_filesystem():
        assert_store("myfs://host/folder", {"key": "..."})

``offsetlog.testing.history`` checks what programs saw of a log, ours or another.
"""

from offsetlog.testing.conformance import assert_store, check_store
from offsetlog.testing.report import Check, Latency, Report

__all__ = ["Check", "Latency", "Report", "assert_store", "check_store"]
