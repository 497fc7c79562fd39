"""Each test is in one tier, and tests/README.md shows the table."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests import tiers


class Test(NamedTuple):
    """One that is marked, or not."""

    __test__ = False
    nodeid: str
    marks: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        return tiers.ROOT / self.nodeid.partition("::")[0]

    def get_closest_marker(self, name: str) -> object:
        return name if name in self.marks else None


@pytest.mark.parametrize(
    ("test", "tier"),
    [
        (Test("tests/core/topic/test_fold.py::test_a"), "quick"),
        (Test("tests/spark_plugin/unit/test_jar.py::test_a"), "quick"),
        (Test("tests/spark_plugin/test_source_stream.py::test_a"), "rest"),
        (Test("tests/spark_plugin/test_source_stream.py::test_a", ("every_line",)), "quick"),
        (
            Test("tests/spark_plugin/test_source_stream.py::test_a", ("every_line", "in_python")),
            "rest",
        ),
        (Test("tests/spark_plugin/test_connect.py::test_a", ("every_line",)), "rest"),
        (Test("tests/page/test_browser.py::test_stored_text_is_text"), "quick"),
        (Test("tests/page/test_browser.py::test_keys"), "rest"),
    ],
)
def test_which_tier(test: Test, tier: str) -> None:
    assert tiers.tier_of(test) == tier


def test_a_file_whose_needs_are_not_installed_is_not_imported() -> None:
    assert tiers.is_left_out(tiers.ROOT / "tests/docs/test_site.py", "quick")
    assert not tiers.is_left_out(tiers.ROOT / "tests/docs/test_site.py", "rest")
    assert not tiers.is_left_out(tiers.ROOT / "tests/page/test_browser.py", "quick")


def test_each_row_names_tests_that_are_there() -> None:
    for row in tiers.ROWS:
        for name in row.tests:
            path, _, test = name.partition("::")
            assert (tiers.ROOT / path).exists(), name
            assert not test or f"def {test}(" in (tiers.ROOT / path).read_text(), name


def test_the_readme_shows_the_table() -> None:
    assert tiers.table() in tiers.README.read_text(), "run: python -m tests.tiers"
