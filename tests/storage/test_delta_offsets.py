"""What only the Delta table can get wrong: other tables, other writers, paths, secrets."""

from __future__ import annotations

import json
import shutil
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

import offsetlog
from offsetlog.errors import CorruptLogError, InvalidRequestError, StorageError
from offsetlog.format import fact_rows
from offsetlog.storage import open_store
from offsetlog.storage.open_offsets import _azure, _gcs, _s3, open_offsets


@pytest.fixture
def place(tmp_path):
    return tmp_path / "log" / "__consumer_offsets"


@pytest.fixture
def log(tmp_path):
    with offsetlog.open(str(tmp_path / "log")) as log:
        log.create_topic("orders", partitions=2)
        with log.producer() as producer:
            for n in range(10):
                producer.send("orders", b"%d" % n, partition=n % 2)
        yield log


def commit(log, group="billing"):
    with log.consumer(group, enable_auto_commit=False) as consumer:
        consumer.assign([("orders", 0), ("orders", 1)])
        consumer.commit({("orders", 0): (3, "note"), ("orders", 1): 2})


def test_the_table_reads_back_by_other_means(log, place):
    commit(log)
    log.group("billing").reset("orders", to="earliest", dry_run=False)
    commit(log, "audit")
    table = DeltaTable(str(place))
    rows = pa.table(
        QueryBuilder()
        .register("facts", table)
        .execute(
            'SELECT "group", topic, partition, "offset", metadata, kind, version, place '
            "FROM facts ORDER BY version, place"
        )
        .read_all()
    ).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("billing", "orders", 0, 3, "note", "commit", 1, 0),
        ("billing", "orders", 1, 2, "", "commit", 1, 1),
        ("billing", "orders", 0, 0, "", "reset", 2, 0),
        ("billing", "orders", 1, 0, "", "reset", 2, 1),
        ("audit", "orders", 0, 3, "note", "commit", 3, 0),
        ("audit", "orders", 1, 2, "", "commit", 3, 1),
    ]
    files = [pq.read_table(path.removeprefix("file://")) for path in table.file_uris()]
    direct = pa.concat_tables(files).sort_by([("version", "ascending"), ("place", "ascending")])
    assert direct.column("offset").to_pylist() == [row["offset"] for row in rows]
    assert str(direct.schema.field("committed_at").type).startswith("timestamp[us, tz=UTC")


def test_the_present_positions_are_a_query_of_the_facts(log, place):
    commit(log)
    log.group("billing").reset("orders", to="latest", partitions=[1], dry_run=False)
    shown = log.positions().to_pylist()
    assert [(r["group"], r["topic"], r["partition"], r["offset"]) for r in shown] == [
        ("billing", "orders", 0, 3),
        ("billing", "orders", 1, 5),
    ]


def test_a_delta_table_of_another_shape_is_refused(log, place):
    write_deltalake(str(place), pa.table({"a": [1]}))
    with pytest.raises(InvalidRequestError, match="another shape: its columns are a"):
        commit(log)
    with pytest.raises(InvalidRequestError, match="another shape"):
        log.groups()
    assert DeltaTable(str(place)).version() == 0


def test_something_else_at_that_place_is_refused(log, place):
    place.mkdir()
    (place / "notes.txt").write_text("mine")
    with pytest.raises(InvalidRequestError, match=r"notes\.txt.*no Delta table.*offsets\.table"):
        log.groups()
    with pytest.raises(InvalidRequestError, match="no Delta table"):
        commit(log)
    assert [p.name for p in place.iterdir()] == ["notes.txt"]


def test_the_table_may_lie_elsewhere(log, tmp_path, place):
    elsewhere = tmp_path / "positions"
    with offsetlog.open(log.url, offsets_table=str(elsewhere)) as other:
        commit(other)
        assert list(other.groups()) == ["billing"]
    assert DeltaTable(str(elsewhere)).version() == 1
    assert not place.exists() and list(log.groups()) == []
    with pytest.raises(InvalidRequestError, match=r"offsets\.table"):
        offsetlog.open(log.url, offsets_table="").groups()


def test_rows_that_others_put_there_move_nothing(log, place):
    commit(log)
    row = pq.read_table(DeltaTable(str(place)).file_uris()[0].removeprefix("file://"))
    write_deltalake(str(place), row.cast(fact_rows.SCHEMA), mode="append")
    with pytest.raises(CorruptLogError, match="two facts at place 0 of version 1|twice"):
        offsetlog.open(log.url).group("billing").lag()
    with pytest.raises(CorruptLogError, match="says it is of version 1"):
        commit(log)


def test_a_path_out_of_the_table_is_refused(log, place, tmp_path):
    commit(log)
    file = DeltaTable(str(place)).file_uris()[0].removeprefix("file://")
    shutil.copy(file, tmp_path / "evil.parquet")
    outside = str(tmp_path / "evil.parquet")
    for path in ("../../evil.parquet", outside, f"file://{outside}", "%2e%2e/evil.parquet"):
        entry = place / "_delta_log" / f"{2:020d}.json"
        add = {"path": path, "size": 1, "partitionValues": {}, "modificationTime": 1,
               "dataChange": True}  # fmt: skip
        entry.write_text(json.dumps({"add": add}) + "\n")
        port = open_offsets(open_store(log.url))
        with pytest.raises(CorruptLogError, match="outside the table"):
            port.read(1)
        entry.unlink()


def test_without_deltalake_it_says_what_to_install(log, monkeypatch):
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(InvalidRequestError, match='pip install "deltalake>=1.6,<2"'):
        commit(log)
    assert log.topic("orders").end_offsets() == {0: 5, 1: 5}


def test_the_import_is_only_paid_by_groups():
    import subprocess

    code = (
        "import sys, offsetlog; log = offsetlog.open('memory://x'); log.create_topic('t');"
        "log.consumer().assign([('t', 0)]); print('deltalake' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_secret_is_in_no_error(moto):
    url, options = moto
    wrong = {**options, "key": "AKIAEXAMPLEEXAMPLE77", "secret": "hunter2-hunter2-hunter2",
             "endpoint_url": "http://127.0.0.1:9"}  # fmt: skip
    port = open_offsets(open_store(f"{url}/secret", **wrong))
    with pytest.raises(StorageError) as caught:
        port._open()
    said = repr(caught.value) + str(caught.value.__cause__) + str(caught.value.__context__)
    assert "hunter2" not in str(caught.value) and "AKIAEXAMPLE" not in str(caught.value), said


def test_options_are_told_in_deltalakes_words():
    assert _s3({"key": "k", "secret": "s", "client_kwargs": {"endpoint_url": "http://h:1"}}) == {
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_ENDPOINT_URL": "http://h:1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "aws_conditional_put": "etag",
    }
    assert _s3({"client_kwargs": {"region_name": "eu-west-1"}, "anon": True}) == {
        "AWS_REGION": "eu-west-1",
        "AWS_SKIP_SIGNATURE": "true",
        "aws_conditional_put": "etag",
    }
    assert _azure(
        {"connection_string": "AccountName=a;AccountKey=b==;BlobEndpoint=http://h/a"}
    ) == {
        "AZURE_STORAGE_ACCOUNT_NAME": "a",
        "AZURE_STORAGE_ACCOUNT_KEY": "b==",
        "AZURE_STORAGE_ENDPOINT": "http://h/a",
        "allow_http": "true",
    }
    assert _azure({"account_name": "a", "sas_token": "t"}) == {
        "AZURE_STORAGE_ACCOUNT_NAME": "a",
        "AZURE_STORAGE_SAS_TOKEN": "t",
    }
    assert json.loads(_gcs({"token": {"type": "x"}})["GOOGLE_SERVICE_ACCOUNT_KEY"]) == {"type": "x"}
    assert _gcs({}) == {}
