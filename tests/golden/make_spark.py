"""Made ``e1a20b5/spark``: run once, with commit e1a20b5 checked out and Spark 4.2, as
``python -m tests.golden.make_spark``.

It is kept to show what is in the files. It is never run again: what another commit writes is
not what a user of that one has on disk. A later format gets files of its own beside these.

Each story is a folder with a root and a checkpoint; ``planned`` is what the batch that is to be
run again reads, ``rest`` what comes after it, as offsets by partition.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import offsetlog
import offsetlog.spark
from tests.golden import yesterday

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "spark"))
from live import Live, fill, lose_commit, source, until, wal  # noqa: E402

PLACE = Path("/tmp/offsetlog-yesterday/spark")
NOW = {"availableNow": True}
GROUP = {"group__id": "g"}
FIRST = {"subscribe": "orders", "startingOffsets": "earliest"}
Story = Callable[[Any, Path, Any], dict[str, Any]]


def run(spark: Any, place: Path, **given: Any) -> Live:
    with Live(spark, place / "log", place / "checkpoint", NOW, **given) as live:
        return live.finished()


def fails(spark: Any, place: Path, at: int, **given: Any) -> None:
    with Live(spark, place / "log", place / "checkpoint", NOW, **given) as live:
        live.fail_at = at
        assert "on purpose" in live.error()


def span(start: int, end: int) -> list[int]:
    return [*range(start, end)]


def clean(spark: Any, place: Path, log: Any) -> dict[str, Any]:
    """Stopped when all was read; more came since."""
    given = {**FIRST, **GROUP, "maxOffsetsPerTrigger": 4}
    assert len(run(spark, place, **given).batches) == 3
    fill(log, "orders", {0: 3, 1: 1})
    return {"options": given, "rest": {"0": span(6, 9), "1": span(4, 5)}, "resets": 0}


def no_group(spark: Any, place: Path, log: Any) -> dict[str, Any]:
    given = {**FIRST, "maxOffsetsPerTrigger": 4}
    run(spark, place, **given)
    fill(log, "orders", {0: 3, 1: 1})
    return {"options": given, "rest": {"0": span(6, 9), "1": span(4, 5)}}


def first_earliest(spark: Any, place: Path, log: Any) -> dict[str, Any]:
    """The first batch failed; nothing in the checkpoint says where it began."""
    given = {**FIRST, **GROUP}
    fails(spark, place, 0, **given)
    assert "@from" not in wal(place / "checkpoint", 0)
    fill(log, "orders", {0: 2, 1: 2})
    planned = {"0": span(0, 6), "1": span(0, 4)}
    rest = {"0": span(6, 8), "1": span(4, 6)}
    return {"options": given, "batch": 0, "planned": planned, "rest": rest, "resets": 0}


def first_offsets(spark: Any, place: Path, log: Any) -> dict[str, Any]:
    """The same, where the user named the offsets, without a group."""
    given = {**FIRST, "startingOffsets": json.dumps({"orders": {"0": 2, "1": -2}})}
    fails(spark, place, 0, **given)
    assert "@from" not in wal(place / "checkpoint", 0)
    fill(log, "orders", {0: 2})
    planned = {"0": span(2, 6), "1": span(0, 4)}
    return {"options": given, "batch": 0, "planned": planned, "rest": {"0": span(6, 8)}}


def first_latest(spark: Any, place: Path, log: Any) -> dict[str, Any]:
    """The first batch failed, which only says where it began; records came since."""
    given = {**FIRST, **GROUP, "startingOffsets": "latest"}
    fails(spark, place, 0, **given)
    assert wal(place / "checkpoint", 0)["@from"] == {"orders": {"0": 6, "1": 4}}
    assert wal(place / "checkpoint", 0)["orders"] == {"0": 6, "1": 4}
    fill(log, "orders", {0: 2, 1: 2})
    rest = {"0": span(6, 8), "1": span(4, 6)}
    return {"options": given, "batch": 0, "planned": {}, "rest": rest, "resets": 0}


def first_before(spark: Any, place: Path, log: Any) -> dict[str, Any]:
    """The same with a start that is counted from the end, without a group."""
    given = {**FIRST, "startingOffsets": "-3"}
    fails(spark, place, 0, **given)
    assert wal(place / "checkpoint", 0)["@from"] == {"orders": {"0": 3, "1": 1}}
    fill(log, "orders", {0: 2, 1: 2})
    planned = {"0": span(3, 6), "1": span(1, 4)}
    rest = {"0": span(6, 8), "1": span(4, 6)}
    return {"options": given, "batch": 0, "planned": planned, "rest": rest}


def later(spark: Any, place: Path, log: Any) -> dict[str, Any]:
    """A batch in the middle failed."""
    given = {**FIRST, **GROUP, "maxOffsetsPerTrigger": 5}
    fails(spark, place, 1, **given)
    done = wal(place / "checkpoint", 0)["orders"]
    end = wal(place / "checkpoint", 1)["orders"]
    fill(log, "orders", {0: 1, 1: 1})
    return {
        "options": given,
        "batch": 1,
        "planned": {p: span(done[p], end[p]) for p in end},
        "rest": {p: span(end[p], now) for p, now in (("0", 7), ("1", 5))},
        "resets": 0,
    }


def followed(spark: Any, place: Path, log: Any) -> dict[str, Any]:
    """A reset was followed, in a batch that was done and one after it."""
    given = {**FIRST, **GROUP}
    run(spark, place, **given)
    log.group("g").reset("orders", to=2, partitions=[0], dry_run=False)
    run(spark, place, **given)
    assert wal(place / "checkpoint", 1)["@from"] == {"orders": {"0": 2}}
    fill(log, "orders", {1: 1})
    run(spark, place, **given)
    fill(log, "orders", {0: 2, 1: 2})
    return {"options": given, "rest": {"0": span(6, 8), "1": span(5, 7)}, "resets": 1}


def following(spark: Any, place: Path, log: Any) -> dict[str, Any]:
    """The driver died when it had read what was reset, and before it wrote that it had."""
    given = {**FIRST, **GROUP}
    run(spark, place, **given)
    log.group("g").reset("orders", to=2, partitions=[0], dry_run=False)
    run(spark, place, **given)
    lose_commit(place / "checkpoint", 1)
    fill(log, "orders", {0: 2, 1: 2})
    planned = {"0": span(2, 6)}
    rest = {"0": span(6, 8), "1": span(4, 6)}
    return {"options": given, "batch": 1, "planned": planned, "rest": rest, "resets": 1}


def to_follow(spark: Any, place: Path, log: Any) -> dict[str, Any]:
    """Reset after the query was stopped."""
    given = {**FIRST, **GROUP}
    run(spark, place, **given)
    log.group("g").reset("orders", to=2, partitions=[0], dry_run=False)
    fill(log, "orders", {1: 1})
    return {"options": given, "rest": {"0": span(2, 6), "1": span(4, 5)}, "resets": 1}


def to_follow_stored(spark: Any, place: Path, log: Any) -> dict[str, Any]:
    """The same, and upkeep has stored the state of all groups since."""
    means = to_follow(spark, place, log)
    log.group("g").reset("orders", to=3, partitions=[1], dry_run=False)
    log.maintain(grace_ms=0)
    return {**means, "rest": {"0": span(2, 6), "1": span(3, 5)}, "resets": 2}


def sink(spark: Any, place: Path, log: Any) -> dict[str, Any]:
    """Topic to topic: the entry of the last batch landed, and Spark's log does not know it."""
    log.create_topic("out", partitions=2, config={"retention.ms": -1})
    with log.producer(linger_ms=50) as producer:
        for at in range(6, 9):
            value = f"orders-0-{at} ".encode() + b"x" * 100_000
            producer.send("orders", value, partition=0)
    given = {**FIRST, **GROUP, "maxOffsetsPerTrigger": 6}
    frame = source(spark, place / "log", stream=True, **given).select("key", "value")
    writer = frame.writeStream.format("offsetlog").option("topic", "out")
    writer = writer.option("checkpointLocation", str(place / "checkpoint")).trigger(**NOW)
    assert writer.start(str(place / "log")).awaitTermination(120)
    last = max(int(name) for name in os.listdir(place / "checkpoint" / "commits") if name.isdigit())
    assert last == 2
    lose_commit(place / "checkpoint", last)
    there = yesterday.topic(log, "out")
    assert sum(there["end"].values()) == 13
    fill(log, "orders", {1: 3})
    values = [f"orders-1-{at}" for at in range(4, 7)]
    return {"options": given, "out": there, "rest": values, "batch": last, "resets": 0}


STORIES: tuple[Story, ...] = (clean, no_group, first_earliest, first_offsets, first_latest,
    first_before, later, followed, following, to_follow, to_follow_stored, sink)  # fmt: skip


def main() -> None:
    shutil.rmtree(PLACE, ignore_errors=True)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    config = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.jars.ivy": str(Path(__file__).resolve().parents[2] / ".cache" / "ivy"),
    }
    spark = offsetlog.spark.session("yesterday", master="local[2]", config=config)
    spark.sparkContext.setLogLevel("ERROR")
    means: dict[str, Any] = {}
    for story in STORIES:
        place = PLACE / story.__name__
        with offsetlog.open(str(place / "log")) as log:
            log.create_topic("orders", partitions=2, config={"retention.ms": -1})
            fill(log, "orders", {0: 6, 1: 4})
            told = story(spark, place, log)
            if "group__id" in told["options"]:
                until(lambda log=log: log.group("g").state() == "Empty")
                assert log.group("g").describe().resets == told["resets"]
        means[story.__name__] = told
        print(story.__name__, told.get("planned"), told["rest"])
    spark.stop()
    files = dict(yesterday.below(PLACE))
    # A checkpoint can be brought to another place: it names none.
    assert not any(b"-yesterday" in files[name] for name in files if "/checkpoint/" in name)
    yesterday.pack("spark", files.items(), means)


if __name__ == "__main__":
    # Spark's process for a source writes the machine's name into the table, and so into git.
    assert socket.gethostname() == "yesterday", "unshare -u sh -c 'hostname yesterday; ...'"
    main()
