"""What we test ourselves with, for users to test their own filesystems with.

A test of one's own::

    from offsetlog.testing import assert_store

    def test_my_filesystem():
        assert_store("myfs://host/folder", {"key": "..."})

``offsetlog.testing.history`` judges what programs were told by a log, ours or another;
``tests.simulation.run`` runs the whole of it under faults from a seed.
"""

from offsetlog.testing.conformance import assert_store, check_store
from offsetlog.testing.report import Check, Latency, Report

__all__ = ["Check", "Latency", "Report", "assert_store", "check_store"]
