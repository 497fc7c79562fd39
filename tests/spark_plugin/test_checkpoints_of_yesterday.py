"""Checkpoints that commit e1a20b5 wrote, and the roots that they read: brought to another
place, their queries go on, with the rows that were planned and each row once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import offsetlog
from tests.golden import yesterday
from tests.spark_plugin.live import Live, lags, places, source, wal

NOW = {"availableNow": True}
MEANING = yesterday.meaning("spark")


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return yesterday.unpack("spark", tmp_path_factory.mktemp("moved"))


def by_partition(offsets: dict[str, list[int]]) -> dict[tuple[str, int], list[int]]:
    return {("orders", int(p)): found for p, found in sorted(offsets.items()) if found}


def group_is_done(root: Path, resets: int) -> None:
    """It has read all, and follows the resets that there were, and no other."""
    with offsetlog.open(str(root)) as log:
        assert set(lags(log).values()) == {0}
        told = log.group("g").describe()
    assert (told.state, told.resets) == ("Empty", resets)


@pytest.mark.parametrize("story", sorted(MEANING.keys() - {"sink"}))
def test_a_query_goes_on(spark: Any, stories: Path, story: str) -> None:
    means, place = MEANING[story], stories / story
    root, checkpoint = place / "log", place / "checkpoint"
    before = max(
        int(path.name) for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()
    )
    planned = None if "planned" not in means else means["batch"]
    assert planned is None or planned == before
    assert (checkpoint / "commits" / str(before)).exists() == (planned is None)
    with Live(spark, root, checkpoint, NOW, **means["options"]) as live:
        live.finished()
    assert min(live.batches) == (before + 1 if planned is None else before)
    if planned is not None:
        assert places(live.batches[before]) == by_partition(means["planned"])
    rest = [row for batch in live.batches if batch != planned for row in live.batches[batch]]
    assert places(rest) == by_partition(means["rest"])
    if "resets" in means:
        group_is_done(root, means["resets"])
        assert wal(checkpoint, max(live.batches))["@reset"] == means["resets"]
    else:
        with offsetlog.open(str(root)) as log:
            assert list(log.groups()) == []


def test_a_sink_goes_on_and_doubles_nothing(spark: Any, stories: Path) -> None:
    means, place = MEANING["sink"], stories / "sink"
    root, checkpoint = place / "log", place / "checkpoint"
    assert not (checkpoint / "commits" / str(means["batch"])).exists()
    frame = source(spark, root, stream=True, **means["options"]).select("key", "value")
    writer = frame.writeStream.format("offsetlog").option("topic", "out").trigger(**NOW)
    query = writer.option("checkpointLocation", str(checkpoint)).start(str(root))
    assert query.awaitTermination(90)
    with offsetlog.open(str(root)) as log:
        found = yesterday.records(log, "out")
        [report] = log.verify("out")
        source_of = yesterday.records(log, "orders")
    assert report.faults == ()
    had = means["out"]["records"]
    new = [record for record in found if record not in had]
    assert [record for record in found if record in had] == had
    assert sorted(value for _, _, _, value, *_ in new) == means["rest"]
    assert sorted(record[3] for record in found) == sorted(record[3] for record in source_of)
    for partition, end in means["out"]["end"].items():
        offsets = [record[1] for record in new if record[0] == int(partition)]
        assert offsets == [*range(end, end + len(offsets))]
    group_is_done(root, means["resets"])
