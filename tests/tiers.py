"""The two tiers of tests: ``quick`` finds bugs within ten minutes, ``rest`` is everything else.

Each test is in exactly one tier: the first row of ``ROWS`` that it matches says in which, and why.
A row names tests by the beginning of their path or id, and, of those, the ones that need something.
``python -m tests.tiers`` writes the table into tests/README.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

QUICK, REST = TIERS = ("quick", "rest")
ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
SPARK = TESTS / "spark_plugin"
WITHOUT_SPARK = SPARK / "unit"
README = TESTS / "README.md"
BEGIN, END = "<!-- tiers: begin -->\n", "<!-- tiers: end -->\n"


class Test(Protocol):
    """What is asked of a test: its id, its file and its marks."""

    @property
    def nodeid(self) -> str: ...
    @property
    def path(self) -> Path: ...
    def get_closest_marker(self, name: str) -> object: ...


def has_session(file: Path) -> bool:
    """Whether tests of a file use the Spark session that a process has."""
    return file.is_relative_to(SPARK) and not file.is_relative_to(WITHOUT_SPARK)


def _all(test: Test) -> bool:
    return True


def _in_python(test: Test) -> bool:
    return test.get_closest_marker("in_python") is not None


def _is_story(test: Test) -> bool:
    return test.get_closest_marker("every_line") is not None


class Row(NamedTuple):
    tier: str
    tests: tuple[str, ...]
    what: str
    why: str
    needs: Callable[[Test], bool] = _all

    def takes(self, test: Test) -> bool:
        return test.nodeid.startswith(self.tests) and self.needs(test)


ROWS = (
    Row(
        QUICK,
        (
            "tests/page/test_browser.py::test_what_each_view_shows",
            "tests/page/test_browser.py::test_stored_text_is_text",
            "tests/page/test_browser.py::test_a_reset_from_dry_run_to_execution",
        ),
        "one path through the page in Chromium",
        "each view, hostile text and a reset: what a change of the page breaks first",
    ),
    Row(
        REST,
        ("tests/page/test_browser.py", "tests/docs/"),
        "all else in a browser, the site",
        "browsers wait for what moves; the site installs Sphinx",
    ),
    Row(
        REST,
        (
            "tests/engine/upkeep/test_kafka_cleaner.py",
            "tests/engine/upkeep/test_table_readers.py",
        ),
        "Kafka's own log cleaner, and other engines that read a topic's table",
        "a broker from Maven; DuckDB and Polars are large",
    ),
    Row(
        REST,
        ("tests/generators/test_more_histories.py",),
        "more histories of each generator and simulation",
        "the longer, the better: some seconds of each",
    ),
    Row(
        REST,
        ("tests/soak/test_load.py", "tests/bench/test_spark_counts.py"),
        "an even load, what a plan asks for",
        "one minute alone on the machine; a JVM of its own",
    ),
    Row(
        REST,
        ("tests/test_package.py",),
        "wheel, sdist and editable install",
        "fresh environments, one for each way to install",
    ),
    Row(
        REST,
        (
            "tests/spark_plugin/test_cluster.py",
            "tests/spark_plugin/test_connect.py",
            "tests/spark_plugin/test_demo.py",
            "tests/spark_plugin/test_notebooks.py",
            "tests/spark_plugin/test_plain_session.py",
            "tests/spark_plugin/test_no_session.py",
            "tests/spark_plugin/test_defaults_file.py",
            "tests/spark_plugin/test_source_crashes.py",
            "tests/spark_plugin/test_sink_kills.py",
            "tests/spark_plugin/test_answers_planted.py",
        ),
        "clusters, Connect, notebooks, the demo, killed drivers, bugs planted in Spark",
        "JVMs of their own, at half a minute each",
    ),
    Row(
        REST,
        ("tests/spark_plugin/",),
        "tasks in Python, where they could run in the JVM",
        "the same stories by the other path",
        _in_python,
    ),
    Row(
        QUICK,
        ("tests/spark_plugin/unit/",),
        "the plugin without Spark",
        "milliseconds each",
    ),
    Row(
        QUICK,
        ("tests/spark_plugin/",),
        "the stories of source, sink, groups and live replay, in one session of the default line",
        "real Spark, by the JVM's reader and writer; the same tests run on every line",
        _is_story,
    ),
    Row(
        REST,
        ("tests/spark_plugin/",),
        "all else with Spark",
        "odd options, odd rows, stores, frames, views: seconds each",
    ),
    Row(
        QUICK,
        ("tests/",),
        "core, format, storage on real servers, engine, client, commands, page, metrics, model, "
        "simulation and generators with their planted bugs, the README's programs",
        "they find most bugs in the least time",
    ),
)


def tier_of(test: Test) -> str:
    """The tier of a test."""
    return next(row.tier for row in ROWS if row.takes(test))


def is_left_out(file: Path, tier: str) -> bool:
    """Whether no test of a file is in a tier: it is not imported there, since what it needs may
    not be installed."""
    name = str(file.relative_to(ROOT))
    for row in ROWS:
        if any(one.startswith(f"{name}::") for one in row.tests):
            return False
        if name.startswith(row.tests):
            return row.needs is _all and row.tier != tier
    return False


def table() -> str:
    """The rows as tests/README.md shows them."""
    lines = ["| tier | tests | why there |", "|---|---|---|"]
    for tier in TIERS:
        lines += [f"| `{tier}` | {row.what} | {row.why} |" for row in ROWS if row.tier == tier]
    return "\n".join(lines) + "\n"


def main() -> int:
    before, _, rest = README.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text(f"{before}{BEGIN}{table()}{END}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
