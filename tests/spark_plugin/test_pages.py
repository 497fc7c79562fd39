"""What the pages say about Spark: their programs run, and their tables are the options."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pyspark_offsetlog.options import check as options
from tests.pages import ROOT, blocks, moved, run, table_rows

SPARK = ROOT / "docs" / "spark.md"
SIDES = {"Source options": options.SOURCE, "Sink options": options.SINK}
DEFAULTS = {
    "startingOffsetsByTimestampStrategy": "at_no_match",
    "auto.offset.reset": "reset_policy",
}


def run_page(page: Path, place: Path) -> str:
    """Run a page's programs one after the other, as a notebook would; what they print."""
    import contextlib
    import io

    namespace: dict[str, Any] = {}
    out = io.StringIO()
    programs = [block for block in blocks("python", page) if "offsetlog-first" not in block]
    assert programs
    with contextlib.redirect_stdout(out):
        for number, program in enumerate(programs):
            exec(compile(moved(program, place), f"{page.name} {number}", "exec"), namespace)
    return out.getvalue()


@pytest.mark.every_line(without_jar=True)
def test_the_readme(spark: Any, tmp_path: Path) -> None:
    assert run_page(ROOT / "README.md", tmp_path) == "batch 0: 1000\n"


def test_the_page_on_spark(spark: Any, tmp_path: Path) -> None:
    out = run_page(SPARK, tmp_path)
    lines = out.splitlines()
    assert lines[0] == "1000" and lines[1].count(": 0") == 3
    assert lines[2:4] == ["100", "1000"]
    assert [line for line in lines if line.startswith("|        ")] == [
        f"|        {partition}|          0|" for partition in range(3)
    ]
    assert spark.read.parquet(str(tmp_path / "spark-out")).count() == 1000


def test_the_page_on_replay(spark: Any, tmp_path: Path) -> None:
    page = ROOT / "docs" / "replay.md"
    lines = run_page(page, tmp_path).splitlines()
    assert lines[0] == "[(0, 100)]" and "dry run" in lines[1]
    assert lines[2] == "[(0, 100), (1, 100)]" and lines[3] == "260"
    commands = "\n".join(blocks("sh", page))
    out = run(["bash", "-euo", "pipefail", "-c", f"cd {tmp_path}\n{commands}"],
              OFFSETLOG_ROOT=str(tmp_path / "replay"))  # fmt: skip
    assert "dry run" in out
    assert (tmp_path / "positions.csv").read_text().count("\n") == 2


def test_the_guide_to_moving(spark: Any, tmp_path: Path) -> None:
    out = run_page(ROOT / "docs" / "moving_from_kafka.md", tmp_path)
    rows = {tuple(int(n) for n in re.findall(r"\d+", line)) for line in out.splitlines()[3:-1]}
    assert rows - {()} == {(0, 40, 10)}  # partition 1 was read to its end


@pytest.mark.parametrize("heading", SIDES)
def test_the_tables_name_each_option_once(heading: str) -> None:
    rows = [row for row in table_rows(SPARK, heading) if row[1]]
    names = [row[0].strip("`") for row in rows]
    assert sorted(names) == sorted([*SIDES[heading], "storage.<name>"])
    assert all(len(row) == 4 and row[1] and row[3] for row in rows)


@pytest.mark.parametrize("heading", SIDES)
def test_each_example_is_taken(heading: str) -> None:
    for name, _, default, example in table_rows(SPARK, heading):
        if not example:
            continue
        given = {"path": "/log", "topic": "orders"}
        if heading == "Source options":
            given = {"path": "/log", "subscribe": "orders", "group.id": "billing"}
        name, value = name.strip("`"), example.strip("`")
        if name == "storage.<name>":
            name, value = (part.strip("` ") for part in example.split("="))
        if name in options.SUBSCRIPTIONS:
            del given["subscribe"]
        if name in ("kafka.bootstrap.servers", "kafka.group.id"):
            del given["path" if "servers" in name else "group.id"]
        if name.startswith("txn"):
            given |= {"txnAppId": "app", "txnVersion": "1"}
        _parse(heading, {**given, name: value})
        values = default.strip("`")
        if name in DEFAULTS:
            told = _parse(heading, given)
            assert getattr(told, DEFAULTS[name]) == values


def _parse(heading: str, given: dict[str, str]) -> Any:
    if heading == "Sink options":
        return options.sink_options(given)
    return options.source_options(given, None)


def test_the_words_that_stand_for_a_start() -> None:
    [row] = [r for r in table_rows(SPARK, "Source options") if r[0] == "`startingOffsets`"]
    for word in ("earliest", "latest", "group", "-1000"):
        given = {"path": "/log", "subscribe": "orders", "group.id": "g", "startingOffsets": word}
        assert options.source_options(given, True).start.kind == (
            "before" if word == "-1000" else word
        )
        assert f"`{'-N' if word == '-1000' else word}`" in row[1]
    assert "stream `latest`, batch `earliest`" in row[2]
    given = {"path": "/log", "subscribe": "orders"}
    assert options.source_options(given, True).start.kind == "latest"
    assert options.source_options(given, False).start.kind == "earliest"
