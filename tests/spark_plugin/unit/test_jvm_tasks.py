"""What the driver and tasks in Spark's JVM say to each other; no Spark runs here."""

from __future__ import annotations

import json
import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

import offsetlog
from offsetlog.engine import record_schema as rows
from offsetlog.engine import records_in
from pyspark_offsetlog.datasource import OffsetLogDataSource
from pyspark_offsetlog.options.check import sink_options
from pyspark_offsetlog.options.spec import JVM_TASKS
from pyspark_offsetlog.runtime.marked_json import marked
from pyspark_offsetlog.sink import jvm_tasks
from pyspark_offsetlog.sink.jvm_tasks import MARK, message_of
from pyspark_offsetlog.sink.task import TaskMessage
from pyspark_offsetlog.sink.writers import BatchWriter
from tests.spark_plugin.unit.sink_tools import ROWS


def plan_in(data: bytes) -> dict:
    """What ``MarkedJson.java`` finds in a pickle."""
    _, _, rest = data.partition(MARK)
    total, length, text = rest[:8], int.from_bytes(rest[8:12], "little"), rest[12:]
    assert xxhash.xxh3_64_intdigest(text[:length]) == int.from_bytes(total, "little")
    return json.loads(text[:length])


def test_only_this_version_gets_a_plan(tmp_path):
    root = str(tmp_path / "log")
    with offsetlog.open(root) as log:
        log.create_topic("t", partitions=4, config={"compression": "lz4"})
    options = {"path": root, "topic": "t"}
    for version, expected in (
        (offsetlog.__version__, True),
        ("0.0.1", False),
        (None, False),
    ):
        told = options if version is None else {**options, JVM_TASKS: version}
        writer = OffsetLogDataSource(told).writer(ROWS, False)
        sent = pickle.dumps(writer)
        assert (MARK in sent) is expected
        if expected:
            plan = plan_in(sent)
    [topic] = plan["topics"]
    assert plan["root"] == root and plan["one_topic"] and topic["compression"] == "lz4"
    assert (tmp_path / "log" / "_offsetlog.json").read_text() == plan["root_file"]
    assert plan["columns"]["text_value"] and not plan["columns"]["text_key"]


def test_a_store_that_is_no_disk_gets_no_plan():
    with offsetlog.open("memory://jvm-tasks") as log:
        log.create_topic("t")
    options = sink_options({"path": "memory://jvm-tasks", "topic": "t"})
    assert BatchWriter(options, ROWS, in_jvm=True).plan_for_jvm == b""


def test_topics_are_planned_up_to_a_bound(tmp_path, monkeypatch):
    root = str(tmp_path / "log")
    with offsetlog.open(root) as log:
        for name in ("a", "b"):
            log.create_topic(name)
    options = sink_options({"path": root})
    writer = BatchWriter(options, ROWS, in_jvm=True)
    assert [t["name"] for t in plan_in(writer.plan_for_jvm)["topics"]] == ["a", "b"]
    monkeypatch.setattr(jvm_tasks, "MOST_TOPICS", 1)
    assert BatchWriter(options, ROWS, in_jvm=True).plan_for_jvm == b""


def test_a_message_has_the_jvms_part_and_pythons_after_it():
    table = pa.table({"value": [b"x", b"y", b"z"], "timestamp": [1, 2, 3]}).cast(
        pa.schema([rows.ROWS.field("value"), rows.ROWS.field("timestamp")])
    )
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, use_dictionary=False) as out:
        for low in (0, 1):
            out.write_table(table.slice(low, low + 1))
    share = {"topic": "t", "partitions": 4, "created_at_entry": 0, "tip": 9, "append_time": True}
    part = [3, 5, 50, 1, 2, [9, "0" * 32, 4000, 600, "f" * 16]]
    told = {
        "query": "q",
        "root_id": "r",
        "shares": [
            {**share, "parts": [part], "rows": []},
            {**share, "parts": [], "rows": [[0, 1], [2, 2]]},
        ],
    }
    rest = TaskMessage("q", (), "r")
    few = sink.getvalue().to_pybytes()
    assert pq.read_metadata(pa.BufferReader(few)).num_row_groups == 2
    message = message_of(json.dumps(told).encode(), (b"", few), pickle.dumps(rest))
    assert (message.query, message.root_id) == ("q", "r")
    assert all(share.append_time for share in message.shares)
    assert records_in(message.shares) == 8
    [staged] = message.shares[0].parts
    assert staged.segment is not None and staged.segment.footer_bytes == 600
    handed = pa.ipc.open_stream(message.shares[1].rows).read_all()
    assert handed.column("partition").to_pylist() == [0, 2, 2]
    assert handed.column("value").to_pylist() == [b"x", b"y", b"z"]


def test_a_mark_has_sixteen_bytes():
    assert len(MARK) == 16 and marked(MARK, {"a": 1}).endswith(b'{"a":1}')
