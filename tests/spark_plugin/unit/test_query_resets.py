"""A query follows the resets of its group, and a batch that is run again reads the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offsetlog.core.group.requests import ExpireRequest
from offsetlog.errors import StorageError
from offsetlog.format.names import ROOT_FILE
from pyspark_offsetlog.options.spec import LogAddress
from pyspark_offsetlog.runtime.open_logs import open_log
from tests.spark_plugin.unit.engine import Checkpoint, at, fill, fresh_root
from tests.spark_plugin.unit.group_tools import GROUP, commit_by_hand, committed, reset
from tests.spark_plugin.unit.query_tools import log_of_orders
from tests.waiting import until

pytestmark = pytest.mark.root_in("memory", "local")
log = log_of_orders(partitions=2)


# --- resets --------------------------------------------------------------------------------


def test_a_reset_rewinds_a_running_query(log: Any, caught_up: Any) -> None:
    query = caught_up({0: 5, 1: 3})
    reset(log, to="earliest")
    assert at(query.batch()) == {("orders", 0): [0, 1, 2, 3, 4], ("orders", 1): [0, 1, 2]}
    end = query.checkpoint.wal[-1]
    assert end["@reset"] == 1
    assert end["@from"] == {"orders": {"0": 0, "1": 0}}
    assert query.batch() is None
    assert committed(log) == {("orders", 0): 5, ("orders", 1): 3}, "it was replayed"
    fill(log, "orders", {1: 1})
    assert at(query.batch()) == {("orders", 1): [3]}
    assert "@from" not in query.checkpoint.wal[-1]


def test_a_reset_is_followed_by_the_very_next_batch(log: Any, caught_up: Any) -> None:
    """Also by a query that was idle, and looks at its group only now and then."""
    query = caught_up({0: 5})
    for _ in range(5):
        assert query.batch() is None
        reset(log, to="earliest", partitions=[0])
        fill(log, "orders", {1: 1})
        rows = at(query.batch())
        assert rows["orders", 0] == [0, 1, 2, 3, 4]
        query.drain()


def test_a_reset_of_a_stopped_query_is_followed_at_its_restart(
    log: Any, root: str, running: Any, caught_up: Any
) -> None:
    query = caught_up({0: 5, 1: 3})
    query.stop()
    reset(log, to=2, partitions=[0])
    again = running(root, query.checkpoint, **GROUP)
    assert at(again.batch()) == {("orders", 0): [2, 3, 4]}
    assert again.batch() is None


def test_a_reset_forwards(log: Any, root: str, running: Any) -> None:
    fill(log, "orders", {0: 10, 1: 10})
    query = running(root, maxOffsetsPerTrigger=4, **GROUP)
    query.batch()
    reset(log, to="latest", partitions=[0])
    assert all(tp == ("orders", 1) for tp in at(query.drain()))
    fill(log, "orders", {0: 1})
    assert at(query.drain()) == {("orders", 0): [10]}
    assert committed(log) == {("orders", 0): 11, ("orders", 1): 10}


def test_a_reset_to_what_the_query_has_not_seen_yet(log: Any, root: str, running: Any) -> None:
    """The reset names an end that another program saw; it is not out of range."""
    fill(log, "orders", {0: 3})
    query = running(root, **GROUP).available_now()
    query.batch()
    fill(log, "orders", {0: 4})
    reset(log, to="latest")
    assert query.drain() == []
    assert committed(log)["orders", 0] == 7
    query.stop()
    fill(log, "orders", {0: 1})
    assert at(running(root, query.checkpoint, **GROUP).drain()) == {("orders", 0): [7]}


def test_two_resets_in_a_row(log: Any, caught_up: Any) -> None:
    query = caught_up({0: 5, 1: 3})
    reset(log, to="earliest", partitions=[0])
    reset(log, to=1, partitions=[1])
    assert at(query.batch()) == {("orders", 0): [0, 1, 2, 3, 4], ("orders", 1): [1, 2]}
    assert query.checkpoint.wal[-1]["@reset"] == 2
    reset(log, to=3, partitions=[0])
    reset(log, to=4, partitions=[0])
    assert at(query.drain()) == {("orders", 0): [4]}


def test_a_reset_between_two_batches_of_a_limited_query(log: Any, root: str, running: Any) -> None:
    fill(log, "orders", {0: 20})
    query = running(root, maxOffsetsPerTrigger=6, **GROUP)
    query.batch()
    query.batch()
    reset(log, to=3)
    assert [at(query.batch())["orders", 0] for _ in range(3)] == [
        [3, 4, 5, 6, 7, 8],
        [9, 10, 11, 12, 13, 14],
        [15, 16, 17, 18, 19],
    ]


def test_a_reset_to_before_the_logs_start(log: Any, capsys: Any, caught_up: Any) -> None:
    query = caught_up({0: 8})
    reset(log, to=1, partitions=[0])
    log.topic("orders").delete_records({0: 5})
    assert at(query.batch()) == {("orders", 0): [5, 6, 7]}
    assert "reading goes on from 5" in capsys.readouterr().err
    assert query.drain() == []


def test_a_reset_to_what_is_gone_to_the_last_record_is_caught_up(log: Any, caught_up: Any) -> None:
    """Where the group was put, nothing is left to read; its lag goes to 0 all the same."""
    query = caught_up({0: 8, 1: 2})
    reset(log, to=1, partitions=[0])
    log.topic("orders").delete_records({0: 8})
    assert query.drain() == []
    assert committed(log) == {("orders", 0): 8, ("orders", 1): 2}


def test_a_reset_of_a_partition_that_available_now_leaves_for_later(
    log: Any, root: str, running: Any
) -> None:
    """It came after the run began, so the next run reads it: from where it was put."""
    fill(log, "orders", {0: 9})
    query = running(root, maxOffsetsPerTrigger=3, **GROUP).available_now()
    query.batch()
    log.topic("orders").alter(partitions=3)
    fill(log, "orders", {2: 5})
    reset(log, to=3, partitions=[2])
    assert at(query.drain()) == {("orders", 0): [3, 4, 5, 6, 7, 8]}
    assert committed(log)["orders", 2] == 3
    query.stop()
    again = running(root, query.checkpoint, **GROUP).available_now()
    assert at(again.drain()) == {("orders", 2): [3, 4]}
    assert committed(log)["orders", 2] == 5


def test_a_reset_after_available_now_has_ended_is_left_to_the_next_run(
    log: Any, root: str, running: Any
) -> None:
    """Spark may ask a source again that is through, while others of the same query go on."""
    fill(log, "orders", {0: 4})
    query = running(root, **GROUP).available_now()
    query.drain()
    reset(log, to=1, partitions=[0])
    assert query.batch() is None
    assert committed(log)["orders", 0] == 1
    again = running(root, query.checkpoint, **GROUP).available_now()
    assert at(again.drain()) == {("orders", 0): [1, 2, 3]}
    assert committed(log)["orders", 0] == 4


def test_the_batch_after_a_reset_run_again_reads_the_same(
    log: Any, root: str, running: Any, caught_up: Any
) -> None:
    query = caught_up({0: 9, 1: 3}, maxOffsetsPerTrigger=5)
    reset(log, to=2, partitions=[0])
    query.plan()
    rows = query.rows()
    # Its commit file is lost, the group is reset again, more comes, files are rewritten.
    reset(log, to=7, partitions=[0])
    fill(log, "orders", {0: 4, 1: 4})
    log.maintain(grace_ms=0)
    again = running(root, query.checkpoint, maxOffsetsPerTrigger=5, **GROUP)
    assert again.batch() == rows
    assert at(again.drain())["orders", 0] == [7, 8, 9, 10, 11, 12]


def test_a_reset_while_a_batch_runs(log: Any, root: str, running: Any) -> None:
    """Its progress is from before the reset, and does not undo it."""
    fill(log, "orders", {0: 6})
    commit_by_hand(log, "g")
    query = running(root, **GROUP)
    query.plan()
    reset(log, to="earliest")
    rows = query.rows()
    query.checkpoint.done = 1
    assert len(rows) == 6
    assert len(query.batch() or []) == 6
    query.drain()
    assert committed(log) == {("orders", 0): 6, ("orders", 1): 0}


def test_a_reset_of_another_topic_moves_nothing(log: Any, root: str, running: Any) -> None:
    log.create_topic("other")
    fill(log, "orders", {0: 3})
    fill(log, "other", {0: 3})
    query = running(root, **GROUP)
    query.drain()
    log.group("g").reset("other", to="earliest", dry_run=False)
    assert query.batch() is None
    fill(log, "orders", {0: 1})
    assert at(query.batch()) == {("orders", 0): [3]}


def test_a_reset_of_a_topic_that_a_pattern_takes_in(log: Any, root: str, running: Any) -> None:
    given = {**GROUP, "subscribePattern": "^o"}
    del given["subscribe"]
    query = running(root, **given)
    query.drain()
    log.create_topic("other")
    fill(log, "other", {0: 5})
    log.group("g").reset("other", to=3, dry_run=False)
    assert at(query.drain()) == {("other", 0): [3, 4]}


def test_a_reset_of_a_topic_that_was_made_anew_a_moment_ago(
    log: Any, root: str, running: Any
) -> None:
    """A pattern passes over a folder without a topic for a second; not over one that was reset."""
    given = {**GROUP, "subscribePattern": "^o"}
    del given["subscribe"]
    log.create_topic("other")
    fill(log, "other", {0: 3})
    log.delete_topic("other")
    fill(log, "orders", {0: 2})
    query = running(root, **given)
    query.drain()
    log.create_topic("other")
    fill(log, "other", {0: 10})
    log.group("g").reset("other", to="latest", dry_run=False)
    fill(log, "orders", {0: 1})
    assert at(query.batch()) == {("orders", 0): [2]}
    checkpoint = query.run._owner.checkpoint
    assert query.checkpoint.wal[-1] == {
        "orders": {"0": 3, "1": 0}, "other": {"0": 13}, "@group": "g", "@reset": 1,
        "@from": {"other": {"0": 13}}, "@checkpoint": checkpoint,
    }  # fmt: skip
    fill(log, "other", {0: 1})
    assert at(query.drain()) == {("other", 0): [13]}


def test_a_reset_of_a_topic_that_is_gone_by_now(log: Any, root: str, running: Any) -> None:
    """It counts as followed, so the others are sought once and not again and again."""
    given = {**GROUP, "subscribePattern": "^o", "failOnDataLoss": "false"}
    del given["subscribe"]
    fill(log, "orders", {0: 3})
    log.create_topic("other")
    query = running(root, **given)
    query.drain()
    query.stop()
    log.group("g").reset(to="earliest", dry_run=False)
    log.delete_topic("other")
    again = running(root, query.checkpoint, **given)
    assert at(again.batch()) == {("orders", 0): [0, 1, 2]}
    assert again.batch() is None
    assert again.checkpoint.wal[-1]["@reset"] == 1


@pytest.mark.parametrize("loss", ["true", "false"])
def test_a_reset_beyond_what_is_in_sight_is_no_reset_to_the_start(
    log: Any, root: str, running: Any, loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a disk that shows an older view: the place is there, and others have seen it."""
    monkeypatch.setattr("pyspark_offsetlog.source.visibility.LOOK_SECONDS", 0.0)
    monkeypatch.setattr("pyspark_offsetlog.source.micro_batches.IDLE_LOOK", 0.0)
    given = {**GROUP, "subscribePattern": "^o", "failOnDataLoss": loss}
    del given["subscribe"]
    fill(log, "orders", {0: 3})
    query = running(root, **given)
    query.drain()
    # What others see of the same log: it has its id.
    elsewhere = open_log(LogAddress(fresh_root(), offsets_table=f"{root}/__consumer_offsets"))
    elsewhere.store.put(ROOT_FILE, log.store.get(ROOT_FILE))
    elsewhere.create_topic("orders", partitions=2)
    elsewhere.create_topic("other")
    fill(elsewhere, "orders", {0: 9})
    fill(elsewhere, "other", {0: 4})
    for topic, told in (("other", "sees no such topic"), ("orders", "sees the log only up to 3")):
        elsewhere.group("g").reset(topic, to="latest", dry_run=False)
        with pytest.raises(StorageError, match=told):
            query.batch()


def test_a_group_that_was_deleted_does_not_move_a_checkpoint(
    log: Any, root: str, running: Any, caught_up: Any
) -> None:
    query = caught_up({0: 5})
    reset(log, to="earliest")
    query.drain()
    query.stop()
    log.group("g").delete()
    fill(log, "orders", {0: 1})
    again = running(root, query.checkpoint, **GROUP)
    assert at(again.drain()) == {("orders", 0): [5]}
    reset(log, to=4, partitions=[0])
    assert at(again.drain()) == {("orders", 0): [4, 5]}
    assert again.checkpoint.wal[-1]["@reset"] == 2, "numbers never start again"


AWAY = ("nothing", "delete", "delete-offsets", "expire", "a commit")


@pytest.mark.parametrize("policy", ["latest", "earliest", "none"])
@pytest.mark.parametrize("what", AWAY)
def test_a_reset_is_followed_to_where_it_put_the_group_whatever_happened_since(
    log: Any, root: str, running: Any, what: str, policy: str
) -> None:
    fill(log, "orders", {0: 10, 1: 1})
    given = {**GROUP, "auto__offset__reset": policy}
    query = running(root, **given)
    query.drain()
    query.stop()
    fill(log, "orders", {0: 5})
    reset(log, to=2, partitions=[0])
    if what == "delete":
        log.group("g").delete()
    elif what == "delete-offsets":
        log.group("g").delete_offsets("orders")
    elif what == "expire":
        until(lambda: log.offsets_table.accept(ExpireRequest("g", 1)) and not committed(log))
    elif what == "a commit":
        with log.consumer(group="g") as consumer:
            consumer.assign([("orders", 0)])
            consumer.commit({("orders", 0): 15})
    again = running(root, query.checkpoint, **given)
    assert at(again.drain()) == {("orders", 0): [*range(2, 15)]}
    assert committed(log) == {("orders", 0): 15, ("orders", 1): 1}
    assert again.checkpoint.wal[-1]["@reset"] == 1


def test_a_query_that_was_copied_follows_what_its_copy_has_followed(
    log: Any, root: str, running: Any, caught_up: Any
) -> None:
    """As a checkpoint that was restored from a backup does."""
    query = caught_up({0: 10})
    query.stop()
    copy = Checkpoint()
    copy.wal, copy.done = list(query.checkpoint.wal), query.checkpoint.done
    fill(log, "orders", {0: 20})
    reset(log, to=15, partitions=[0])
    first = running(root, query.checkpoint, **GROUP)
    assert at(first.drain()) == {("orders", 0): [*range(15, 30)]}
    first.stop()
    assert committed(log)["orders", 0] == 30
    assert at(running(root, copy, **GROUP).drain()) == {("orders", 0): [*range(15, 30)]}


@pytest.mark.parametrize(
    ("how", "target"),
    [
        ({"to": "earliest"}, 1),
        ({"to": "latest"}, 12),
        ({"to": "current"}, 9),
        ({"to": 4}, 4),
        ({"shift_by": -6}, 3),
        ({"to_datetime": "2023-11-14T22:13:25Z"}, 5),
        ({"by_duration": "P3650D"}, 1),
        ({"from_file": "plan"}, 6),
    ],
)
def test_each_kind_of_reset_of_a_group_that_is_gone_since(
    log: Any, root: str, running: Any, tmp_path: Path, how: dict[str, Any], target: int
) -> None:
    with log.producer() as producer:
        for n in range(12):
            value = f"orders-0-{n}".encode()
            producer.send("orders", value, partition=0, timestamp=1_700_000_000_000 + 1000 * n)
    log.topic("orders").delete_records({0: 1})
    query = running(root, maxOffsetsPerTrigger=8, **GROUP)
    query.batch()
    query.batch()
    query.checkpoint.wal.pop()  # A backup of the checkpoint that is a batch behind the group.
    query.checkpoint.done = 1
    query.stop()
    commit = {("orders", 0): 9}
    with log.consumer(group="g") as consumer:
        consumer.assign([("orders", 0)])
        consumer.commit(commit)
    if "from_file" in how:
        plan = tmp_path / "plan.csv"
        plan.write_text("orders,0,6\n")
        log.group("g").reset(from_file=plan, dry_run=False)
    else:
        reset(log, partitions=[0], **how)
    log.group("g").delete()
    again = running(root, query.checkpoint, **GROUP)
    assert at(again.drain()).get(("orders", 0), []) == [*range(target, 12)]
    assert committed(log)["orders", 0] == 12


def test_a_checkpoint_without_a_number_or_of_another_group(
    log: Any, root: str, running: Any
) -> None:
    fill(log, "orders", {0: 5})
    for group, resets in (("g", 1), ("other", 4)):
        commit_by_hand(log, group)
        for _ in range(resets):
            log.group(group).reset("orders", to="earliest", dry_run=False)
    plain = running(root, subscribe="orders", startingOffsets="earliest")
    plain.batch()
    query = running(root, plain.checkpoint, **GROUP)
    assert query.drain() == []
    assert committed(log) == {("orders", 0): 5, ("orders", 1): 0}
    fill(log, "orders", {0: 1})
    assert at(query.batch()) == {("orders", 0): [5]}
    checkpoint = query.run._owner.checkpoint
    assert query.checkpoint.wal[-1] == {
        "orders": {"0": 6, "1": 0}, "@group": "g", "@reset": 1, "@checkpoint": checkpoint
    }  # fmt: skip
    other = running(root, query.checkpoint, **{**GROUP, "group__id": "other"})
    assert other.drain() == []
    assert committed(log, "other") == {("orders", 0): 6, ("orders", 1): 0}
    log.group("other").reset("orders", to=4, partitions=[0], dry_run=False)
    assert at(other.batch()) == {("orders", 0): [4, 5]}
    assert other.checkpoint.wal[-1]["@reset"] == 5


@pytest.mark.parametrize("now", [False, True])
@pytest.mark.parametrize("before", [None, "other"])
def test_a_group_that_was_added_while_nothing_came(
    log: Any, root: str, running: Any, before: str | None, now: bool
) -> None:
    """The run that takes it over leaves its number in the checkpoint before it commits."""
    fill(log, "orders", {0: 10})
    plain = {"subscribe": "orders", "startingOffsets": "earliest"}
    query = running(root, **plain, **({} if before is None else {"group__id": before}))
    query.drain()
    query.stop()
    commit_by_hand(log, "g")
    reset(log, to=7, partitions=[0])  # Before it takes over: not for this query.
    first = running(root, query.checkpoint, **GROUP)
    if now:
        first.available_now()
    asked = first.run.next(query.checkpoint.wal[-1], True)
    first.run._owner.flush()
    assert committed(log)["orders", 0] == 7, "nothing is in the checkpoint yet"
    assert first.plan() == asked
    checkpoint = first.run._owner.checkpoint
    assert first.checkpoint.wal[-1] == {
        "orders": {"0": 10, "1": 0}, "@group": "g", "@reset": 1, "@checkpoint": checkpoint
    }  # fmt: skip
    assert first.rows() == []
    first.checkpoint.done += 1
    assert first.batch() is None, "one empty batch is enough"
    assert committed(log) == {("orders", 0): 10, ("orders", 1): 0}
    first.stop()
    reset(log, to=4, partitions=[0])
    again = running(root, query.checkpoint, **GROUP)
    assert at(again.drain()) == {("orders", 0): [4, 5, 6, 7, 8, 9]}
    assert committed(log)["orders", 0] == 10


def test_a_group_that_was_added_to_a_batch_that_is_run_again(
    log: Any, root: str, running: Any
) -> None:
    fill(log, "orders", {0: 10})
    query = running(root, subscribe="orders", startingOffsets="earliest")
    query.plan()
    first = running(root, query.checkpoint, **GROUP)
    assert len(first.batch() or []) == 10
    assert first.plan() is not None
    # It died before that empty batch was done with.
    first.run._owner.flush()
    reset(log, to=4, partitions=[0])
    again = running(root, query.checkpoint, **GROUP)
    assert again.batch() == []
    assert at(again.drain()) == {("orders", 0): [4, 5, 6, 7, 8, 9]}


def test_a_table_that_was_wiped_and_reset_while_nothing_came(
    root: str, running: Any, tmp_path: Path
) -> None:
    """The new table's numbers are below the checkpoint's for a while; its resets count."""
    tables = [str(tmp_path / name) for name in ("first", "second")]
    log = open_log(LogAddress(root))
    log.create_topic("orders", partitions=1)
    fill(log, "orders", {0: 5})
    first, second = (open_log(LogAddress(root, offsets_table=table)) for table in tables)
    query = running(root, offsets__table=tables[0], **GROUP)
    query.drain()
    for _ in range(3):
        reset(first, to="earliest")
    query.drain()
    again = running(root, query.checkpoint, offsets__table=tables[1], **GROUP)
    assert again.drain() == []
    again.stop()
    assert again.checkpoint.wal[-1]["@reset"] == 0
    reset(second, to=3)
    last = running(root, query.checkpoint, offsets__table=tables[1], **GROUP)
    assert at(last.drain()) == {("orders", 0): [3, 4]}


def test_a_table_that_was_wiped_counts_anew(root: str, running: Any, tmp_path: Path) -> None:
    tables = [str(tmp_path / name) for name in ("first", "second")]
    log = open_log(LogAddress(root))
    log.create_topic("orders", partitions=2)
    fill(log, "orders", {0: 5})
    first = open_log(LogAddress(root, offsets_table=tables[0]))
    second = open_log(LogAddress(root, offsets_table=tables[1]))
    query = running(root, offsets__table=tables[0], **GROUP)
    query.drain()
    for _ in range(3):
        first.group("g").reset("orders", to="earliest", dry_run=False)
    query.drain()
    again = running(root, query.checkpoint, offsets__table=tables[1], **GROUP)
    assert again.drain() == []
    assert committed(second) == {("orders", 0): 5, ("orders", 1): 0}
    for _ in range(4):
        second.group("g").reset("orders", to=3, partitions=[0], dry_run=False)
    again.log.offsets_table.look()  # An idle query looks now and then only.
    assert at(again.batch()) == {("orders", 0): [3, 4]}
    assert again.drain() == []


def test_random_histories_read_each_record_as_the_resets_say(
    log: Any, root: str, running: Any
) -> None:
    """Appends, batches, crashes and resets in any order: what is read next is always what a
    list of plain positions says."""
    import random

    chance = random.Random(7)
    query = running(root, maxOffsetsPerTrigger=3, **GROUP)
    ends, position = [0, 0], [0, 0]
    for _ in range(120):
        what = chance.choice(["append", "batch", "batch", "reset", "crash", "lost"])
        p = chance.randrange(2)
        if what == "append":
            fill(log, "orders", {p: 2})
            ends[p] += 2
        elif what == "reset" and query.checkpoint.done and "g" in log.groups():
            to = chance.randrange(ends[p] + 1)
            log.group("g").reset("orders", to=to, partitions=[p], dry_run=False)
            position[p] = to
        elif what == "crash":
            query = running(root, query.checkpoint, maxOffsetsPerTrigger=3, **GROUP)
        elif what == "lost" and query.plan() is not None:
            rows = query.rows()
            query = running(root, query.checkpoint, maxOffsetsPerTrigger=3, **GROUP)
            assert query.batch() == rows
            _follow(rows, position)
        else:
            _follow(query.batch() or [], position)
    rows = query.drain()
    _follow(rows, position)
    assert position == ends


def _follow(rows: list[Any], position: list[int]) -> None:
    for row in rows:
        assert row.offset == position[row.partition]
        position[row.partition] += 1
