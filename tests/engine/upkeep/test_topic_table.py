"""Topics as Delta tables, read back by readers of Delta that are not ours."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

import offsetlog
from offsetlog.client.topic import TableInfo
from offsetlog.engine.topic import topic_table
from offsetlog.engine.upkeep.maintenance import Maintenance

NOW = int(time.time() * 1000) - 3_600_000
DAY_MS = 86_400_000
CONFIG = {"table.format": "delta"}


@pytest.fixture
def log(log: offsetlog.Log) -> Iterator[offsetlog.Log]:
    log.create_topic("orders", partitions=2, config=CONFIG)
    yield log
    assert [(r.faults, r.caches) for r in log.verify() if not r.sound] == []


def send(log: offsetlog.Log, count: int, *, size: int = 10, at: int = NOW) -> None:
    with log.producer() as producer:
        for n in range(count):
            headers = [("h", b"x"), ("none", None)] if n % 3 == 0 else None
            value = None if n % 7 == 0 else b"%d-" % n + b"v" * size
            key = None if n % 5 == 0 else b"k%d" % (n % 4)
            producer.send("orders", value=value, key=key, headers=headers, timestamp=at + n)


def path_of(log: offsetlog.Log) -> str:
    info = log.topic("orders").table()
    assert info is not None
    return info.path


def rows_of(table: DeltaTable, where: str = "") -> list[tuple[Any, ...]]:
    """The rows of a table, as tuples in order."""
    query = f'select * from t {where} order by "partition", "offset"'
    read = pa.table(QueryBuilder().register("t", table).execute(query).read_all())
    times = read.column("timestamp").cast(pa.int64()).to_pylist()
    return [
        (
            row["partition"],
            row["offset"],
            time // 1000,
            row["key"],
            row["value"],
            [(h["key"], h["value"]) for h in row["headers"] or []],
        )
        for row, time in zip(read.to_pylist(), times, strict=True)
    ]


def records_of(log: offsetlog.Log, info: TableInfo) -> list[tuple[Any, ...]]:
    """What the log itself has up to the table's ends."""
    out = []
    with log.consumer() as consumer:
        consumer.assign([("orders", p) for p in info.end_offsets])
        consumer.seek_to_beginning()
        while batch := consumer.poll(timeout=0.1):
            out += batch
    return sorted(
        (r.partition, r.offset, r.timestamp, r.key, r.value, r.headers)
        for r in out
        if r.offset < info.end_offsets[r.partition]
    )


def check(log: offsetlog.Log) -> TableInfo:
    """The table has exactly the records of the log, and is up to date."""
    info = log.topic("orders").table()
    assert info is not None
    table = DeltaTable(info.path)
    assert table.version() == info.version
    assert rows_of(table) == records_of(log, info)
    assert info.end_offsets == log.topic("orders").end_offsets()
    return info


def versions(path: str) -> list[list[dict[str, Any]]]:
    """The actions of each version that is there."""
    folder = Path(path, "_delta_log")
    return [
        [json.loads(line) for line in file.read_text().splitlines()]
        for file in sorted(folder.glob("*.json"))
    ]


def streamed(path: str) -> list[str]:
    """What a stream over the table reads: the files that a version adds with a change of data."""
    adds = [a["add"] for actions in versions(path) for a in actions if "add" in a]
    return [add["path"] for add in adds if add["dataChange"]]


def test_a_topic_is_a_table_with_exactly_its_records(log: offsetlog.Log) -> None:
    assert log.topic("orders").table() is None
    send(log, 500)
    log.maintain()
    info = check(log)
    assert info.version == 0
    assert sum(info.end_offsets.values()) == 500
    table = DeltaTable(info.path)
    assert table.metadata().partition_columns == ["partition"]
    fields = {field.name: json.loads(field.type.to_json()) for field in table.schema().fields}
    headers = fields.pop("headers")
    assert fields == {
        "partition": "integer",
        "offset": "long",
        "timestamp": "timestamp",
        "key": "binary",
        "value": "binary",
    }
    assert [f["name"] for f in headers["elementType"]["fields"]] == ["key", "value"]
    assert rows_of(table, 'where "partition" = 1 and "offset" = 7') == [
        row for row in rows_of(table) if row[:2] == (1, 7)
    ]


def test_each_round_brings_the_table_up_to_date(log: offsetlog.Log) -> None:
    for n in range(12):
        send(log, 20 + n, at=NOW + 1000 * n)
        log.maintain()
        info = check(log)
        assert info.version == n
    files = [a["path"] for a in pa.table(DeltaTable(info.path).get_add_actions()).to_pylist()]
    assert len(files) < 20, "small files stay small"
    assert Path(info.path, "_delta_log", f"{10:020d}.checkpoint.parquet").exists()
    for n in range(12):
        assert len(rows_of(DeltaTable(info.path, version=n))) == sum(range(20, 21 + n))
    log.maintain()
    assert check(log) == info, "nothing new is no new version"
    table = pq.read_table(Path(info.path, "_delta_log", f"{10:020d}.checkpoint.parquet"))
    removed = {row["path"] for row in table.column("remove").drop_null().to_pylist()}
    gone = {a["remove"]["path"] for v in versions(info.path)[:11] for a in v if "remove" in a}
    assert removed == gone and gone
    assert {row["path"] for row in table.column("add").drop_null().to_pylist()} == {
        a["path"] for a in pa.table(DeltaTable(info.path, version=10).get_add_actions()).to_pylist()
    }


def test_partitions_that_are_added_come_into_the_table(log: offsetlog.Log) -> None:
    send(log, 200)
    log.maintain()
    log.topic("orders").alter(partitions=4)
    send(log, 8)
    log.maintain()
    check(log)


def test_large_segments_are_rewritten_once(tmp_path: Path) -> None:
    with offsetlog.open(str(tmp_path / "log")) as log:
        log.create_topic("orders", config={**CONFIG, "segment.bytes": 1024 * 1024})
        send(log, 2000, size=2000)
        log.maintain()
        check(log)
        names = {p.name for p in Path(path_of(log), "partition=0").iterdir()}
        log.maintain()
        log.maintain()
        check(log)
        assert names == {p.name for p in Path(path_of(log), "partition=0").iterdir()}
        assert len(versions(path_of(log))) == 1


def test_what_is_deleted_from_the_log_is_deleted_from_the_table(log: offsetlog.Log) -> None:
    send(log, 300)
    log.maintain()
    log.topic("orders").delete_records({0: 17, 1: 100})
    log.maintain()
    assert len(rows_of(DeltaTable(check(log).path))) == 183
    log.topic("orders").alter(config={"retention.bytes": 0})
    send(log, 40)
    log.maintain()
    check(log)


def test_a_stream_sees_each_record_once(log: offsetlog.Log) -> None:
    for n in range(20):
        send(log, 30, at=NOW + 1000 * n)
        if n % 4 == 3:
            log.topic("orders").delete_records({0: 5 * n})
        log.maintain()
        check(log)
    path = path_of(log)
    ranges: dict[str, set[int]] = {}
    for file in streamed(path):
        partition, name = file.split("/")
        base, end = (int(number) for number in name.split("-")[:2])
        assert not ranges.setdefault(partition, set()) & set(range(base, end))
        ranges[partition] |= set(range(base, end))
    assert sum(map(len, ranges.values())) == 600
    for actions in versions(path):
        removes = [a["remove"]["dataChange"] for a in actions if "remove" in a]
        adds = [a["add"]["dataChange"] for a in actions if "add" in a]
        assert not (any(removes) and any(adds)), "a stream that skips removals skips records"


def test_statistics_tell_which_files_a_query_needs(log: offsetlog.Log) -> None:
    send(log, 100, at=NOW)
    log.maintain()
    send(log, 100, at=NOW + 60_000)
    log.maintain()
    for add in pa.table(DeltaTable(check(log).path).get_add_actions(flatten=True)).to_pylist():
        count = add["max.offset"] - add["min.offset"] + 1
        assert add["num_records"] == count
        late = add["min.timestamp"].timestamp() * 1000 >= NOW + 60_000 - 1
        assert late == (add["max.timestamp"].timestamp() * 1000 >= NOW + 60_000 - 1)


def test_others_may_read_it_and_not_write_to_it(log: offsetlog.Log) -> None:
    send(log, 50)
    log.maintain()
    path = path_of(log)
    table = DeltaTable(path)
    row = pa.table({"partition": pa.array([0], pa.int32())})
    for write in (
        lambda: deltalake.write_deltalake(path, row, mode="append", schema_mode="merge"),
        lambda: deltalake.write_deltalake(path, row, mode="overwrite", schema_mode="overwrite"),
        table.delete,
        table.optimize.compact,
        lambda: table.update(updates={"key": "null"}),
        lambda: table.alter.set_table_properties({"delta.appendOnly": "true"}),
        lambda: table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True),
    ):
        Path(path, "partition=0", f"{9:020d}-{'a' * 32}.parquet").touch()
        with pytest.raises(Exception, match="offsetlog"):
            write()
    assert check(log).version == 0


def test_a_checkpoint_of_somebody_does_no_harm(log: offsetlog.Log) -> None:
    for _ in range(3):
        send(log, 50)
        log.maintain()
    table = DeltaTable(path_of(log))
    table.create_checkpoint()
    table.cleanup_metadata()
    send(log, 50)
    log.maintain()
    check(log)


def test_turned_off_it_is_nobodys_and_turned_on_again_it_is_whole(log: offsetlog.Log) -> None:
    send(log, 100)
    log.maintain()
    path = path_of(log)
    log.topic("orders").alter(config={"table.format": "none"})
    assert log.topic("orders").table() is None
    log.maintain()
    with pytest.raises(Exception, match="offsetlog-closed"):
        rows_of(DeltaTable(path))
    send(log, 100)
    log.maintain()
    log.topic("orders").alter(config=CONFIG)
    log.maintain()
    assert len(rows_of(DeltaTable(check(log).path))) == 200


def test_a_table_turned_on_late_has_the_whole_log(tmp_path: Path) -> None:
    with offsetlog.open(str(tmp_path / "log")) as log:
        log.create_topic("orders", partitions=2)
        for _ in range(10):
            send(log, 30)
        log.maintain()
        assert not (tmp_path / "log" / "orders" / "_delta_log").exists()
        log.topic("orders").alter(partitions=3, config=CONFIG)
        log.maintain()
        assert sum(check(log).end_offsets.values()) == 300


def test_a_deleted_topic_has_no_table_and_a_new_one_goes_on(log: offsetlog.Log) -> None:
    send(log, 100)
    log.maintain()
    path = path_of(log)
    log.delete_topic("orders")
    log.maintain()
    with pytest.raises(Exception, match="offsetlog-closed"):
        rows_of(DeltaTable(path))
    log.create_topic("orders", partitions=1, config=CONFIG)
    send(log, 10)
    log.maintain()
    assert len(rows_of(DeltaTable(check(log).path))) == 10


def age(path: str) -> None:
    """As if three days had passed."""
    old = time.time() - 3 * DAY_MS / 1000
    for place in Path(path).rglob("*"):
        if place.name == "stubs.json":
            place.unlink()  # It notes when upkeep last looked for files that nobody needs.
        elif place.is_file():
            os.utime(place, (old, old))


def held(path: str) -> set[str]:
    return {f"{place.parent.name}/{place.name}" for place in Path(path).glob("partition=*/*")}


@pytest.mark.parametrize("then", ["quiet", "turned off", "deleted"])
def test_files_go_also_where_nothing_comes_any_more(log: offsetlog.Log, then: str) -> None:
    send(log, 100)
    log.maintain()
    path = path_of(log)
    if then == "turned off":
        log.topic("orders").alter(config={"table.format": "none"})
        log.maintain()
    before = held(path)
    if then == "deleted":
        log.delete_topic("orders")
    else:
        log.topic("orders").erase(keys=[b"k%d" % n for n in range(4)])
    written = held(path) - before
    log.maintain()
    for _ in range(3):
        assert written <= held(path)
        age(path)
        log.maintain()
    assert held(path) == written
    newest = len(versions(path))
    for _ in range(3):
        age(path)
        log.maintain()
    assert len(versions(path)) == newest, "and then nothing is left to do"
    if then == "quiet":
        check(log)
    assert not [fault for report in log.verify() for fault in report.faults]


def test_the_log_of_a_closed_table_has_checkpoints_too(
    log: offsetlog.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version comes wherever segments of a busy topic wait; nothing dropped old ones."""
    monkeypatch.setattr(topic_table, "CHECKPOINT_VERSIONS", 10)
    send(log, 100)
    log.maintain()
    path = Path(path_of(log)) / "_delta_log"
    log.topic("orders").alter(config={"table.format": "none"})
    table = log.open_topic("orders").table
    for round_ in range(30):
        send(log, 1)
        log.open_topic("orders").state()
        table.publish(log.env.now_ms() + round_ * DAY_MS, 0, advance=True)
    assert list(path.glob("*.checkpoint.parquet")) and len(list(path.glob("*.json"))) < 25
    with pytest.raises(Exception, match="offsetlog-closed"):
        rows_of(DeltaTable(str(path.parent)))
    assert not [fault for report in log.verify() for fault in report.faults + report.caches]
    log.topic("orders").alter(config={"table.format": "delta"})
    log.maintain()
    assert len(rows_of(DeltaTable(check(log).path))) == 130


def test_files_that_a_version_of_the_grace_period_names_stay(log: offsetlog.Log) -> None:
    for n in range(8):
        send(log, 30, at=NOW + n)
        log.maintain()
        for version in range(n + 1):
            assert len(rows_of(DeltaTable(path_of(log), version=version))) == 30 * (version + 1)
    age(path_of(log))  # All that was removed was removed long ago.
    send(log, 30)
    log.maintain()
    log.maintain(grace_ms=0)
    check(log)
    live = {a["path"] for a in pa.table(DeltaTable(path_of(log)).get_add_actions()).to_pylist()}
    there = {f"{p.parent.name}/{p.name}" for p in Path(path_of(log)).glob("partition=*/*")}
    assert there == live


def test_what_somebody_wrote_is_refused_by_name(log: offsetlog.Log) -> None:
    send(log, 30)
    log.maintain()
    path = path_of(log)
    info = {"commitInfo": {"timestamp": 0, "operation": "WRITE", "engineInfo": "somebody"}}
    Path(path, "_delta_log", f"{1:020d}.json").write_text(json.dumps(info) + "\n")
    send(log, 30)
    with pytest.raises(offsetlog.InvalidRequestError, match="somebody else"):
        log.maintain()
    log.topic("orders").alter(config={"table.format": "none"})
    log.maintain()
    log.topic("orders").alter(config=CONFIG)
    log.maintain()
    check(log)


def test_where_no_reader_of_delta_comes_it_is_refused(tmp_path: Path) -> None:
    with offsetlog.open("memory://tables") as log:
        with pytest.raises(offsetlog.InvalidRequestError, match=r"table\.format=delta.*memory"):
            log.create_topic("orders", config=CONFIG)
        log.create_topic("orders")
        with pytest.raises(offsetlog.InvalidRequestError, match=r"table\.format=delta"):
            log.topic("orders").alter(config=CONFIG)
        assert log.topic("orders").table() is None


def test_a_copy_has_a_table_of_its_own(log: offsetlog.Log, tmp_path: Path) -> None:
    place = str(tmp_path / "copy")
    for _ in range(4):
        for _ in range(5):
            send(log, 30)
            log.maintain()
        log.copy(place)
        with offsetlog.open(place) as copy:
            info = check(copy)
            assert info.path == str(tmp_path / "copy" / "orders")
            assert rows_of(DeltaTable(info.path)) == rows_of(DeltaTable(path_of(log)))
    ids = {DeltaTable(path).metadata().id for path in (path_of(log), str(info.path))}
    assert len(ids) == 2
    log.copy("memory://copy-of-a-table")
    with offsetlog.open("memory://copy-of-a-table") as copy:
        assert copy.topic("orders").table() is None
        send(copy, 10)
        copy.maintain()


def faults(log: offsetlog.Log) -> list[str]:
    return [fault for report in log.verify("orders") for fault in report.faults]


def test_verify_compares_the_table_with_the_chain(log: offsetlog.Log) -> None:
    for _ in range(3):
        send(log, 40)
        log.maintain()
    assert faults(log) == []
    path = Path(path_of(log))
    newest = path / "_delta_log" / f"{2:020d}.json"
    text = newest.read_text()
    lines = text.splitlines()
    add = next(line for line in lines if line.startswith('{"add"'))
    for changed, word in (
        (text.replace(add + "\n", ""), "lacks partition="),
        (text.replace('\\"offset\\":', '\\"offset\\":1'), "says other things of"),
        (text.replace('"files":', '"files":1'), "and says 1"),
        (text.replace('"offsetlog":{', '"other":{'), "somebody else"),
        (text.replace('"offsetlog":{"tip":', '"offsetlog":{"tip":9'), "which the chain has not"),
    ):
        assert changed != text
        newest.write_text(changed)
        assert any(word in fault for fault in faults(log)), (word, faults(log))
    newest.write_text(text)
    assert faults(log) == []
    log.topic("orders").delete_records({0: -1, 1: -1})
    segment = path / json.loads(add)["add"]["path"]
    data = segment.read_bytes()
    segment.unlink()
    assert any("is gone" in fault for fault in faults(log))
    segment.write_bytes(data)


def test_verify_asks_no_file_for_what_was_deleted_of_an_entry(log: offsetlog.Log) -> None:
    """The log starts within an entry that is not rewritten yet, and the table ends there."""
    with log.producer() as producer:
        futures = [producer.send("orders", b"%d" % n, partition=0) for n in range(5)]
    assert [future.result().offset for future in futures] == [0, 1, 2, 3, 4]
    log.topic("orders").delete_records({0: 3})
    Maintenance(log.open_topic("orders"), grace_ms=0)._publish(NOW)
    info = log.topic("orders").table()
    assert info is not None and info.end_offsets == {0: 3, 1: 0}
    assert faults(log) == []


def test_verify_reads_a_tables_log_as_others_do(
    log: offsetlog.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What takes rows from a reader of Delta, or gives it others, is a fault; what it can do
    without is a cache."""
    monkeypatch.setattr(topic_table, "FEW_VERSIONS", 3)
    for _ in range(5):
        send(log, 40)
        log.maintain()
    folder = Path(path_of(log)) / "_delta_log"
    for version, old, new in (
        (1, '{"partition":"0"}', '{"partition":"1"}'),
        (0, '"partitionColumns":["partition"]', '"partitionColumns":["qartition"]'),
        (0, '"minReaderVersion":1', '"minReaderVersion":3'),
        (0, '\\"name\\": \\"key\\"', '\\"name\\": \\"jey\\"'),
        (2, '"size":', '"size":1'),
        (4, '"dataChange"', '"dataChangf"'),
    ):
        file = folder / f"{version:020d}.json"
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new, 1))
        assert any(file.name in fault for fault in faults(log)), (old, faults(log))
        file.write_text(text)
    [checkpoint] = folder.glob("*.checkpoint.parquet")
    note = folder / "_last_checkpoint"
    for file, changed in (
        (checkpoint, b""),
        (checkpoint, checkpoint.read_bytes()[:100]),
        (checkpoint, checkpoint.read_bytes().replace(b"numRecords", b"numRecorde", 1)),
        (note, note.read_bytes().replace(b'"version":3', b'"version":2')),
        (note, note.read_bytes().replace(b'"size":', b'"size":1')),
    ):
        data = file.read_bytes()
        assert changed != data
        file.write_bytes(changed)
        [report] = log.verify("orders")
        assert not report.faults and file.name in {Path(c.file).name for c in report.caches}
        file.write_bytes(data)


MAINTAINER = """
import sys, offsetlog
with offsetlog.open(sys.argv[1]) as log:
    print("open", flush=True)
    while True:
        log.maintain("orders")
"""


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def test_killed_maintainers_leave_one_true_table(log: offsetlog.Log) -> None:
    """Two at a time, ended at any moment, while records come and go and the table is read."""
    rng = random.Random(7)
    root = log.url.removeprefix("file://")
    running: list[subprocess.Popen[bytes]] = []
    try:
        for turn in range(9):
            while len(running) < 2:
                command = [sys.executable, "-c", MAINTAINER, root]
                running.append(subprocess.Popen(command, stdout=subprocess.PIPE))
                assert running[-1].stdout.readline() == b"open\n"
            send(log, rng.randint(1, 60), at=NOW + 1000 * turn)
            if turn % 5 == 4:
                starts = log.topic("orders").beginning_offsets()
                log.topic("orders").delete_records({0: starts[0] + 3})
            time.sleep(rng.uniform(0, 0.15))
            end(running.pop(rng.randrange(2)))
            if log.topic("orders").table() is not None:
                table = DeltaTable(path_of(log))
                rows = [row[:2] for row in rows_of(table)]
                assert len(rows) == len(set(rows))
    finally:
        for process in running:
            end(process)
    log.maintain()
    info = check(log)
    assert faults(log) == []
    tips = [actions[0]["commitInfo"]["offsetlog"]["tip"] for actions in versions(info.path)]
    assert tips == sorted(tips)
    assert len(streamed(info.path)) == len(set(streamed(info.path)))


def test_what_compaction_takes_leaves_the_table_and_no_stream_sees_a_record_twice(
    tmp_path: Path,
) -> None:
    config = {**CONFIG, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    with offsetlog.open(str(tmp_path / "log")) as log:
        log.create_topic("orders", config=config)
        for n in range(6):
            with log.producer() as producer:
                for m in range(40):
                    value = None if m == 3 and n == 4 else b"%d" % n
                    key = b"k%d" % (m % (7 + n))
                    producer.send("orders", value=value, key=key, timestamp=NOW + 1000 * n + m)
            log.maintain()
            check(log)
            assert faults(log) == []
        info = check(log)
        assert len(rows_of(DeltaTable(info.path))) < 40
        removed = [
            [a["remove"]["dataChange"] for a in actions if "remove" in a]
            for actions in versions(info.path)
        ]
        assert any(any(changes) for changes in removed)
        for actions in versions(info.path):
            takes = any(a["remove"]["dataChange"] for a in actions if "remove" in a)
            assert not (takes and any(a["add"]["dataChange"] for a in actions if "add" in a))


def test_on_an_object_store_too(moto: Any) -> None:
    root = f"{moto.url}/a-topic-as-a-table"
    options = {
        "AWS_ENDPOINT_URL": str(moto.options["endpoint_url"]),
        "AWS_ACCESS_KEY_ID": str(moto.options["key"]),
        "AWS_SECRET_ACCESS_KEY": str(moto.options["secret"]),
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
    }
    with offsetlog.open(root, **moto.options) as log:
        log.create_topic("orders", partitions=2, config=CONFIG)
        for _ in range(2):
            send(log, 100)
            log.maintain("orders")
            info = log.topic("orders").table()
            assert info is not None and info.path == f"{root}/orders"
            table = DeltaTable(info.path, storage_options=options)
            assert rows_of(table) == records_of(log, info)
        assert faults(log) == []
