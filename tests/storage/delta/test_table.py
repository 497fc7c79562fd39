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
from deltalake import DeltaTable, Field, QueryBuilder, write_deltalake
from deltalake.schema import PrimitiveType

import offsetlog
from offsetlog.core.group.decide import decide
from offsetlog.core.group.facts import Fact, OffsetAndMetadata
from offsetlog.core.group.fold import fold
from offsetlog.core.group.requests import CommitRequest
from offsetlog.core.group.state import EMPTY, GroupsState, GroupState, Position
from offsetlog.errors import CorruptLogError, InvalidRequestError, StorageError
from offsetlog.format import delta_log
from offsetlog.format import facts_arrow as fact_rows
from offsetlog.format.delta_log import DataFile
from offsetlog.storage import Committed, Conflict, open_store
from offsetlog.storage.delta import table as delta_offsets
from offsetlog.storage.delta.compact import bins_of
from offsetlog.storage.delta.log import REAL
from offsetlog.storage.offsets.open import FOLDER, open_offsets
from offsetlog.storage.offsets.port import TableNews


@pytest.fixture
def place(tmp_path):
    return tmp_path / "log" / "__consumer_offsets"


@pytest.fixture
def log(log, orders):
    with log.producer() as producer:
        for n in range(10):
            producer.send("orders", b"%d" % n, partition=n % 2)
    return log


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
    with pytest.raises(InvalidRequestError, match=r"offsets_table is"):
        offsetlog.open(log.url, offsets_table="").groups()


def test_rows_that_others_put_there_move_nothing(log, place):
    commit(log)
    row = pq.read_table(DeltaTable(str(place)).file_uris()[0].removeprefix("file://"))
    write_deltalake(str(place), row.cast(fact_rows.SCHEMA), mode="append")
    for table in (log, offsetlog.open(log.url)):
        assert table.group("billing").lag() == {("orders", 0): 2, ("orders", 1): 3}
    commit(log)
    row = row.set_column(3, row.schema.field("offset"), pa.array([4, 4], pa.int64()))
    write_deltalake(str(place), row.cast(fact_rows.SCHEMA), mode="append")
    with pytest.raises(CorruptLogError, match="two facts at one place"):
        commit(log)
    with pytest.raises(CorruptLogError, match="two facts at"):
        offsetlog.open(log.url).groups()


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


def test_groups_need_no_deltalake(log, monkeypatch):
    monkeypatch.setitem(sys.modules, "deltalake", None)
    commit(log)
    log.maintain()
    with offsetlog.open(log.url) as again:
        assert again.group("billing").lag() == {("orders", 0): 2, ("orders", 1): 3}


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


# --- files that no version names -----------------------------------------------------------


def fresh(port):
    news = port.read(-1)
    return fold(EMPTY, news.facts, news.version)


def stands_still(port, number):
    """An append whose data lies there and whose version does not: (what its put will say, path).

    Hours ago, by the clock of whoever looks."""
    table = fresh(port)
    said = {("orders", 0): OffsetAndMetadata(number, "")}
    made = decide(table, [CommitRequest("late", None, 0, 0, said)], 1000, f"late{number}")
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
    slow = REAL._replace(now_ms=lambda: 1000 * next(clock))
    true = delta_offsets.DeltaOffsets.__init__

    def init(self, *given):
        true(self, *given, surroundings=slow)

    monkeypatch.setattr(delta_offsets.DeltaOffsets, "__init__", init)


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
    made = decide(seen, [CommitRequest(group, None, 0, 0, said)], 1000, group)
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


# --- whose it is ---------------------------------------------------------------------------


def two_logs(tmp_path, table):
    for name in ("a", "b"):
        log = offsetlog.open(str(tmp_path / name), offsets_table=str(table))
        log.create_topic("orders", partitions=2)
        with log.producer() as producer:
            for n in range(10):
                producer.send("orders", b"%d" % n, partition=n % 2)
        yield log


def test_two_logs_cannot_share_a_table_by_accident(tmp_path):
    first, second = two_logs(tmp_path, tmp_path / "table")
    commit(first)
    for ask in (commit, lambda log: log.groups(), lambda log: log.group("billing").lag()):
        with pytest.raises(InvalidRequestError, match=f"belongs to the log.*{first.root_id}"):
            ask(second)
    commit(first, "audit")
    with offsetlog.open(first.url, offsets_table=str(tmp_path / "table")) as again:
        commit(again, "third")
        assert len(again.groups()) == 3
        again.maintain()
    with pytest.raises(InvalidRequestError, match="belongs to the log"):
        commit(second)
    [note] = (tmp_path / "table" / "_delta_log").glob("_last_checkpoint")
    (tmp_path / "table" / "_delta_log" / f"{0:020d}.json").unlink()
    fresh_b = offsetlog.open(second.url, offsets_table=str(tmp_path / "table"))
    with pytest.raises(InvalidRequestError, match="belongs to the log"):
        fresh_b.groups()
    note.unlink()
    fresh_b = offsetlog.open(second.url, offsets_table=str(tmp_path / "table"))
    with pytest.raises(InvalidRequestError, match="belongs to the log"):
        fresh_b.groups()


def test_an_older_table_goes_to_the_first_log_that_writes_to_it(tmp_path):
    table = tmp_path / "table"
    first, second = two_logs(tmp_path, table)
    write_deltalake(str(table), fact_rows.SCHEMA.empty_table(), mode="error")
    before = DeltaTable(str(table)).metadata()
    assert list(first.groups()) == list(second.groups()) == []
    commit(first)
    assert list(first.groups()) == ["billing"]
    with pytest.raises(InvalidRequestError, match="belongs to the log"):
        commit(second)
    after = DeltaTable(str(table)).metadata()
    assert after.configuration == {**before.configuration, "offsetlog.root": first.root_id}
    assert (after.id, after.created_time) == (before.id, before.created_time)
    commit(first, "audit")
    assert DeltaTable(str(table)).version() == 2
    with offsetlog.open(first.url, offsets_table=str(table)) as again:
        assert list(again.groups()) == ["audit", "billing"]


def test_of_two_logs_that_take_an_older_table_at_once_one_gets_it(tmp_path):
    table = tmp_path / "table"
    first, second = two_logs(tmp_path, table)
    write_deltalake(str(table), fact_rows.SCHEMA.empty_table(), mode="error")
    port = second.offsets_table.port
    append = port.append

    def overtaken(facts, version):
        port.append = append
        commit(first)
        return append(facts, version)

    port.append = overtaken
    with pytest.raises(InvalidRequestError, match="belongs to the log"):
        commit(second)
    commit(first, "audit")
    assert list(first.groups()) == ["audit", "billing"]


def test_a_chain_belongs_to_one_log_too(tmp_path):
    for old in (False, True):
        table = f"memory://{tmp_path.name}-{old}"
        first, second = two_logs(tmp_path / str(old), "unused")
        for log in (first, second):
            log._offsets_place = table
        if old:
            store = open_store(table)
            name = f"_log/{0:016d}/{0:020d}.json"
            text = {"format": 1, "table": f"offsets of {store.url}"}
            store.offer(json.dumps(text).encode(), name).put(name)
        commit(first)
        with pytest.raises(InvalidRequestError, match="belongs to the log"):
            commit(second)
        commit(first, "audit")
        with offsetlog.open(first.url, offsets_table=table) as again:
            assert list(again.groups()) == ["audit", "billing"]


# --- long files, and many of them ----------------------------------------------------------


def rows_of(version, count):
    """Rows of one version of a group with so many partitions."""
    fact = Fact("billing", "orders", 0, 3, "", 5, 0, 0, None, "commit", "w", version, 0)
    columns = [pa.repeat(column[0], count) for column in fact_rows.to_arrow([fact]).columns]
    table = pa.Table.from_arrays(columns, schema=fact_rows.SCHEMA)
    places = pa.array(range(count), pa.int32())
    return table.set_column(table.schema.get_field_index("place"), fact_rows.SCHEMA[-1], places)


def put_version(port, version, rows):
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd")
    data, path = sink.getvalue().to_pybytes(), f"long{version}.parquet"
    port.store.put(f"{FOLDER}/{path}", data)
    add = {"path": path, "size": len(data), "partitionValues": {}, "modificationTime": 1,
           "dataChange": True, "stats": json.dumps({"numRecords": rows.num_rows})}  # fmt: skip
    name = f"{FOLDER}/_delta_log/{version:020d}.json"
    port.store.offer(json.dumps({"add": add}).encode() + b"\n", name).put(name)


def test_compaction_makes_no_file_that_a_reader_refuses(log, place):
    """Rows of facts compress to less than a byte each: a bin by its bytes alone has no end."""
    port = open_offsets(open_store(log.url))
    port.create()
    for version in range(1, 23):
        put_version(port, version, rows_of(version, 100_000))
    for _ in range(2):
        port.maintain(EMPTY, 0)
    files = [pq.read_metadata(path).num_rows for path in place.glob("compacted-*")]
    assert files and max(files) <= 250_000
    assert len(open_offsets(open_store(log.url))._read_all(21).facts) == 100_000


def test_a_file_that_older_versions_made_too_long_is_read_and_left_alone(log, place):
    port = open_offsets(open_store(log.url))
    port.create()
    put_version(port, 1, rows_of(1, 1))
    put_version(port, 2, pa.concat_tables([rows_of(1, 2_000_001), rows_of(2, 3)]))
    assert len(open_offsets(open_store(log.url))._read_all(1).facts) == 3
    for _ in range(2):
        port.maintain(EMPTY, 0)
    assert f"{place}/long2.parquet" in [
        uri.removeprefix("file://") for uri in DeltaTable(str(place)).file_uris()
    ]


def test_a_row_is_written_again_a_few_times_only():
    live: dict[str, DataFile] = {}
    written, total, longest = 0, 0, 0
    for tidy in range(1500):
        for n in range(50):
            live[f"{tidy}-{n}"] = DataFile(3000, 40)
        total += 50 * 40
        for number, paths in enumerate(bins_of(live)):
            gone = [live.pop(path) for path in paths]
            rows = sum(file.rows for file in gone)
            written += rows
            longest = max(longest, rows)
            live[f"c{tidy}-{number}"] = DataFile(2000 + rows, rows)
    assert longest <= 250_000
    assert len(live) < 60
    assert written < 15 * total


def test_a_checkpoint_of_many_positions_is_read_again(log):
    port = open_offsets(open_store(log.url))
    port.create()
    said = Position(3, "a text with it" * 280, 5, None, 0, "commit", 0)
    positions = {(f"topic-{n // 100}", n % 100): said for n in range(20_000)}
    table = GroupsState(0, {"billing": GroupState("billing", positions=positions)})
    port.store_checkpoint(table)
    assert port.store.info(f"{FOLDER}/_state/checkpoint.json").size > 64 * 1024 * 1024
    assert len(port.checkpoint().group("billing").positions) == len(positions)


# --- links, pipes, columns -----------------------------------------------------------------


def test_a_link_in_place_of_the_table_is_not_written_through(log, place, tmp_path):
    with log.consumer("billing", enable_auto_commit=False) as consumer:
        consumer.assign([("orders", 0)])
        consumer.commit({("orders", 0): 1})
        for inside in ("", "_delta_log"):
            moved = tmp_path / f"moved{inside}"
            (place / inside).rename(moved)
            (place / inside).symlink_to(moved)
            before = sorted(str(path) for path in moved.rglob("*"))
            with pytest.raises(StorageError, match="symbolic link"):
                consumer.commit({("orders", 0): 2})
            with pytest.raises(StorageError, match="symbolic link"):
                log.maintain()
            assert sorted(str(path) for path in moved.rglob("*")) == before
            (place / inside).unlink()
            moved.rename(place / inside)
        consumer.commit({("orders", 0): 3})
    assert log.group("billing").describe()


def test_a_checkpoint_that_is_a_link_is_not_read(log, place, tmp_path):
    commit(log)
    log.maintain()
    [checkpoint] = (place / "_delta_log").glob("*.checkpoint.parquet")
    shutil.rmtree(place / "_state")
    outside = tmp_path / "outside.parquet"
    rows = pq.read_table(checkpoint).to_pylist()
    kept = pa.Table.from_pylist([r for r in rows if not r["add"]], pq.read_schema(checkpoint))
    pq.write_table(kept, outside)
    checkpoint.unlink()
    checkpoint.symlink_to(outside)
    with offsetlog.open(log.url) as again:
        assert list(again.groups()) == ["billing"]


def test_what_is_no_file_in_the_log_hangs_nobody(log, place):
    commit(log)
    log.maintain()
    (place / "_delta_log" / "all").symlink_to("/")
    note = place / "_delta_log" / "_last_checkpoint"
    note.unlink()
    os.mkfifo(note)
    with offsetlog.open(log.url) as again:
        assert list(again.groups()) == ["billing"]
        commit(again, "audit")


def test_a_column_that_somebody_added_stops_nobody(log, place):
    commit(log)
    table = DeltaTable(str(place))
    table.alter.add_columns([Field("note", PrimitiveType("string"))])
    commit(log, "audit")
    table = DeltaTable(str(place))
    table.update({"note": "'mine'"}, predicate="\"group\" = 'billing'")
    with offsetlog.open(log.url) as again:
        commit(again, "third")
        again.maintain()
        assert len(again.groups()) == 3
    rows = QueryBuilder().register("facts", DeltaTable(str(place)))
    found = pa.table(rows.execute('SELECT "group", note FROM facts').read_all()).to_pylist()
    assert {(row["group"], row["note"]) for row in found} == {
        ("billing", "mine"), ("audit", None), ("third", None),
    }  # fmt: skip


def test_a_demand_that_is_not_kept_here_is_a_clear_error_and_no_open_fate(log, place):
    commit(log)
    DeltaTable(str(place)).alter.add_constraint({"small": '"offset" < 4'})
    for _ in range(2):
        with pytest.raises(InvalidRequestError, match=r"demands delta\.constraints\.small") as told:
            commit(log, "audit")
        assert not told.value.may_have_landed
    DeltaTable(str(place)).alter.drop_constraint("small")
    commit(log, "audit")
    assert list(log.groups()) == ["audit", "billing"]


def test_a_text_that_cannot_be_stored_is_refused_and_stops_nobody(log, tmp_path):
    with offsetlog.open(f"memory://{tmp_path.name}") as chain:
        chain.create_topic("orders", partitions=2)
        with chain.producer() as producer:
            for n in range(10):
                producer.send("orders", b"%d" % n, partition=n % 2)
        for opened in (log, chain):
            with opened.consumer("billing", enable_auto_commit=False) as consumer:
                consumer.assign([("orders", 0)])
                with pytest.raises(
                    InvalidRequestError, match=r"no text that can be stored.*\\udcff"
                ):
                    consumer.commit({("orders", 0): (1, "file \udcff")})
                consumer.commit({("orders", 0): (2, "file")})
            commit(opened, "audit")
            port = opened.offsets_table.port
            assert len(port.read(0).facts) == 3


@pytest.mark.parametrize("kind", ["delta", "chain"])
def test_what_a_reader_would_refuse_is_not_written(log, tmp_path, kind):
    store = open_store(log.url if kind == "delta" else f"memory://{tmp_path.name}")
    port = open_offsets(store)
    port.create()
    good = Fact("billing", "orders", 0, 3, "", 5, 0, 0, None, "commit", "w", 1, 0)
    for bad in (
        good._replace(group="\ud800"), good._replace(partition=-1), good._replace(offset=2**70),
        good._replace(metadata=None), good._replace(committed_at=2**62),
    ):  # fmt: skip
        with pytest.raises(InvalidRequestError, match="can't be written"):
            port.append([bad], 1)
    assert port.read(-1) == TableNews(0, ())
    assert isinstance(port.append([good], 1), Committed)


def test_the_schema_of_the_table_is_not_decoded_again_for_each_append(log, monkeypatch):
    decoded = []
    true = delta_log.from_json
    monkeypatch.setattr(
        delta_log, "from_json", lambda *given: decoded.append(given[0]) or true(*given)
    )
    with log.consumer("billing", enable_auto_commit=False) as consumer:
        consumer.assign([("orders", 0)])
        consumer.commit({("orders", 0): 1})
        assert delta_log._SCHEMA_FIELDS in decoded
        decoded.clear()
        for offset in (2, 3):
            consumer.commit({("orders", 0): offset})
    assert not decoded


def test_a_table_that_lost_its_owner_under_a_running_program_gets_it_back(log, place):
    commit(log)
    version = log.offsets_table.look().version
    entries = (place / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    [metadata] = [entry["metaData"] for entry in map(json.loads, entries) if "metaData" in entry]
    assert metadata["configuration"].pop("offsetlog.root") == log.root_id
    other = json.dumps({"metaData": metadata}) + "\n"
    (place / "_delta_log" / f"{version + 1:020d}.json").write_text(other)
    commit(log, "audit")
    assert list(log.groups()) == ["audit", "billing"]
    assert DeltaTable(str(place)).metadata().configuration["offsetlog.root"] == log.root_id


def test_a_table_that_is_made_between_two_looks_is_nobody_elses(log):
    """Two programs begin with groups at once: the one was told that the other's files were
    somebody's. The simulation with Delta's rules found it."""
    port = open_offsets(open_store(log.url))
    refuse = port._refuse_strangers

    def late(*about):
        commit(log)
        refuse(*about)

    port._refuse_strangers = late
    port.read(-1)
    assert port.read(-1).version == 1
