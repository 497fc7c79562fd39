"""What only the Delta table can get wrong: other tables, other writers, paths, secrets."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

import offsetlog
from offsetlog.errors import CorruptLogError, InvalidRequestError, StorageError
from offsetlog.format import fact_rows
from offsetlog.group.decide import decide
from offsetlog.group.facts import OffsetAndMetadata
from offsetlog.group.fold import fold
from offsetlog.group.requests import Commit
from offsetlog.group.state import EMPTY
from offsetlog.storage import Committed, Conflict, delta_offsets, open_store
from offsetlog.storage.open_offsets import FOLDER, _azure, _gcs, _s3, open_offsets


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


# --- files that no version names -----------------------------------------------------------


def fresh(port):
    news = port.read(-1)
    return fold(EMPTY, news.facts, news.version)


def stands_still(port, number):
    """An append whose data lies there and whose version does not: (what its put will say, path).

    Hours ago, by the clock of whoever looks."""
    table = fresh(port)
    said = {("orders", 0): OffsetAndMetadata(number, "")}
    made = decide(table, [Commit("late", None, 0, 0, said)], 1000, f"late{number}")
    sink = pa.BufferOutputStream()
    pq.write_table(fact_rows.to_arrow(made.facts), sink)
    data, path = sink.getvalue().to_pybytes(), f"late{number}.parquet"
    port.store.put(f"{FOLDER}/{path}", data)
    add = {"path": path, "size": len(data), "partitionValues": {}, "modificationTime": 1,
           "dataChange": True}  # fmt: skip
    name = f"{FOLDER}/_delta_log/{made.version:020d}.json"
    return path, lambda: port.store.offer(json.dumps({"add": add}).encode() + b"\n", name).put(name)


@pytest.fixture
def hours_later(monkeypatch):
    """Each look at the clock is hours after the one before it."""
    clock = itertools.count(2_000_000_000, 36_000)
    monkeypatch.setattr(delta_offsets.time, "time", lambda: float(next(clock)))


def aged(place):
    for file in place.glob("*.parquet"):
        os.utime(file, (1, 1))


def test_what_an_append_wrote_stays_while_its_version_is_free(log, place, hours_later):
    """However long its process stood still, and whatever the clock of the maintainer says."""
    commit(log)
    port = open_offsets(open_store(log.url))
    path, put = stands_still(port, 7)
    for _ in range(3):
        aged(place)
        port.maintain(fresh(port), 0)
    assert (place / path).exists()
    assert isinstance(put(), Committed)
    aged(place)
    port.maintain(fresh(port), 0)
    with offsetlog.open(log.url) as again:
        assert again.offsets_table.look().group("late").positions["orders", 0].offset == 7


def test_what_an_append_wrote_goes_when_another_has_its_version(log, place, hours_later):
    commit(log)
    port = open_offsets(open_store(log.url))
    path, put = stands_still(port, 7)

    def maintain():
        aged(place)
        return port.maintain(fresh(port), 0)

    maintain()
    commit(log)
    assert (place / path).exists()
    assert maintain().files_deleted >= 1
    assert not (place / path).exists()
    assert isinstance(put(), Conflict)
    with offsetlog.open(log.url) as again:
        assert again.offsets_table.look().group("billing").positions["orders", 0].offset == 3
    for _ in range(3):
        commit(log)
        maintain()
    assert len(list(place.glob("*.parquet"))) < 8, "what was compacted away goes as well"


def appended(port, group, seen=None):
    """A commit by the process of ``port``, with the handle that it holds."""
    if seen is None:
        seen = fresh(port)
    else:
        news = port.read(seen.version)
        seen = fold(seen, news.facts, news.version)
    said = {("orders", 0): OffsetAndMetadata(3)}
    made = decide(seen, [Commit(group, None, 0, 0, said)], 1000, group)
    assert isinstance(port.append(made.facts, made.version), Committed)


def test_a_commit_beside_a_compaction_does_not_move_what_that_was_planned_from(log, monkeypatch):
    """Another process compacts, this one commits, and then the files of the plan are gone."""
    for name in ("billing", "audit", "third"):
        commit(log, name)
    port, other = (open_offsets(open_store(log.url)) for _ in range(2))
    bins, seen = delta_offsets.bins_of, fresh(port)

    def overtaken(live):
        planned = bins(live)
        monkeypatch.undo()
        assert other._compact()[1] == (3, 1)
        appended(port, "fourth", seen)
        return planned

    monkeypatch.setattr(delta_offsets, "bins_of", overtaken)
    assert port._compact()[1] == (2, 1), "what the others left"
    assert set(fresh(other).groups) == {"billing", "audit", "third", "fourth"}
    assert set(fresh(open_offsets(open_store(log.url))).groups) == set(fresh(other).groups)


def test_a_compaction_gets_past_those_who_append_all_the_time(log, place, monkeypatch):
    """What was written is offered again: written anew it would be late each time."""
    for name in ("billing", "audit", "third"):
        commit(log, name)
    port, other = (open_offsets(open_store(log.url)) for _ in range(2))
    land, left = delta_offsets.land, iter(range(5))

    def late(*args):
        for n in left:
            appended(other, f"more{n}")
            break
        return land(*args)

    monkeypatch.setattr(delta_offsets, "land", late)
    assert port._compact()[1] == (3, 1)
    assert len(list(place.glob("compacted-*"))) == 1
    assert len(fresh(open_offsets(open_store(log.url))).groups) == 8
    assert len(DeltaTable(str(place)).file_uris()) == 1 + 5


def test_what_is_compacted_away_stays_for_those_who_read_it(log, place, hours_later):
    """Also where it was seen before any version named it, long ago."""
    commit(log)
    port = open_offsets(open_store(log.url))
    path, put = stands_still(port, 7)
    port.maintain(fresh(port), 0)
    assert isinstance(put(), Committed)
    aged(place)
    commit(log, "audit")
    port.maintain(fresh(port), 0)
    assert path not in [uri.rpartition("/")[2] for uri in DeltaTable(str(place)).file_uris()]
    assert (place / path).exists()


def test_of_two_compactions_of_the_same_files_one_lands(log, monkeypatch):
    """Else every fact would be there twice, and the table could not be read any more."""
    for name in ("billing", "audit", "third"):
        commit(log, name)
    slow, quick = (open_offsets(open_store(log.url)) for _ in range(2))
    bins = delta_offsets.bins_of
    before = fresh(quick)

    def overtaken(live):
        planned = bins(live)
        monkeypatch.undo()
        assert quick._compact()[1] == (3, 1)
        return planned

    monkeypatch.setattr(delta_offsets, "bins_of", overtaken)
    assert slow._compact()[1] == (0, 0), "there is nothing left to do"
    assert fresh(slow).groups == before.groups
    assert open_offsets(open_store(log.url)).read(-1).version == 4
    commit(log, "fourth")
    assert slow._compact()[1] == (2, 1)
    assert set(fresh(slow).groups) == {"billing", "audit", "third", "fourth"}
