"""Roots that somebody else had their hands in: each thing is an error by name, or let be."""

from __future__ import annotations

import json
import os
import resource
import shutil
import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import offsetlog
from offsetlog.core.group.facts import (
    Fact,
    Subscription,
    TopicView,
    encode_subscription,
    encode_topic,
)
from offsetlog.core.group.fold import fold as fold_facts
from offsetlog.core.group.state import EMPTY
from offsetlog.core.topic.entry import Append, Configure, Create, Entry, Part, SegmentRef
from offsetlog.errors import CorruptLogError, InvalidRequestError, OffsetLogError, StorageError
from offsetlog.format import decisions, entries, names
from offsetlog.format import facts_arrow as fact_rows
from offsetlog.format import record_schema as rows
from offsetlog.format.parquet import write_sealed
from offsetlog.storage import open_store
from offsetlog.storage.offsets.open import open_offsets
from offsetlog.values import MAX_GROUP_PARTITIONS, MAX_PARTITIONS


@pytest.fixture
def root(root):
    with offsetlog.open(str(root)) as log:
        log.create_topic("t", partitions=2)
        with log.producer() as producer:
            producer.send("t", b"v", partition=0).result()
    return root


def forge(root: Path, folder: str, number: int, body) -> None:
    """An entry under a good seal, past the checks of whoever encodes."""
    decision = decisions.encode(Entry(f"{number:032x}", 0, body))
    data = write_sealed(entries._NO_ROWS, None, {entries._DECISION: decision})
    path = root / str(names.EntryName(folder, number))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def everything(root: Path):
    """All that a user may ask of a root; each answer or error of ours."""
    asks = [
        lambda log: log.topics(), lambda log: log.topic("t").end_offsets(),
        lambda log: log.maintain(), lambda log: log.verify(), lambda log: log.groups(),
        lambda log: log.create_topic("new"), read, send,
    ]  # fmt: skip
    out = []
    for ask in asks:
        try:
            # A topic that can't be read is left out with a warning, which is an answer too.
            with warnings.catch_warnings(), offsetlog.open(str(root)) as log:
                warnings.simplefilter("ignore", offsetlog.OffsetLogWarning)
                out.append(ask(log))
        except OffsetLogError as error:
            out.append(error)
    return out


def read(log):
    with log.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([("t", 0)])
        return consumer.poll(0)


def send(log):
    with log.producer() as producer:
        return producer.send("t", b"x", partition=0).result()


# --- entries -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        {"retention.ms": "abc"}, {"retention.ms": "9" * 4000}, {"segment.bytes": "-5"},
        {"compression.type": "evil"}, {"cleanup.policy": "x"}, {"retention.bytes": "1e3"},
        {"message.timestamp.type": "y"}, {"retention.ms": " 5"},
    ],
    ids=str,
)  # fmt: skip
def test_a_config_that_nobody_checked(root, config):
    forge(root, "t", 2, Configure(2, tuple(config.items()), 0))
    with offsetlog.open(str(root)) as log, pytest.raises(CorruptLogError, match="config"):
        log.topic("t").end_offsets()
    assert any(isinstance(found, CorruptLogError) for found in everything(root))


def test_a_config_of_a_later_version_is_let_be(root):
    forge(root, "t", 2, Configure(2, (("later.key", "anything"),), 0))
    with offsetlog.open(str(root)) as log:
        assert send(log).offset == 1


@pytest.mark.parametrize("name", ["../../evil", "/etc", "a\nb", "\x1b[31m", "", ".hidden", "ä"])
def test_a_topic_whose_name_is_none(root, name):
    forge(root, "x", 0, Create(name, 1, (), -1))
    with offsetlog.open(str(root)) as log:
        with pytest.warns(offsetlog.OffsetLogWarning, match="/x can't be read.*topic"):
            assert list(log.topics()) == ["t"]
        assert log.topic("t").end_offsets() == {0: 1, 1: 0}
    everything(root)
    assert not (root.parent.parent / "evil").exists() and not (root.parent / "evil").exists()


@pytest.mark.parametrize("name", ["other", "T"])
def test_a_chain_that_lies_in_another_topics_folder(root, name):
    forge(root, "x", 0, Create(name, 1, (), -1))
    with offsetlog.open(str(root)) as log:
        with pytest.warns(offsetlog.OffsetLogWarning, match="/x can't be read.*belongs into"):
            assert list(log.topics()) == ["t"]
        faults = [fault for report in log.verify() for fault in report.faults]
        assert any(f"topic {name!r}" in fault for fault in faults)


@pytest.mark.parametrize("name", ["T", "t"])
def test_names_that_differ_by_case_or_by_dots_exclude_each_other(root, name):
    with offsetlog.open(str(root)) as log:
        log.create_topic("a.b")
        for other in ("A.B", "a_b", "A_b"):
            with pytest.raises(offsetlog.TopicExistsError):
                log.create_topic(other)
            with pytest.raises(offsetlog.UnknownTopicError):
                log.topic(other).end_offsets()
        with pytest.raises(offsetlog.TopicExistsError):
            log.create_topic(name)


@pytest.mark.parametrize(
    "folder", ["Upper", "a b", "a\nb", "..x", "ä", "x" * 250, "-", "partition=0", "a\\b", "\x1b[2J"]
)
def test_folders_that_are_nobodys_topics_are_let_be(root, folder):
    (root / folder / "_log").mkdir(parents=True)
    with offsetlog.open(str(root)) as log:
        assert list(log.topics()) == ["t"]
        log.maintain()
        topics = {report.topic for report in log.verify()} - {"_offsetlog.json"}
        assert topics == {"t"} or folder == "-"
    assert (root / folder / "_log").is_dir()


# --- files of other sizes and kinds --------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "_offsetlog.json", "t/_snapshot/hint.json", str(names.EntryName("t", 2)),
        "__consumer_offsets/_delta_log/00000000000000000000.json",
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::offsetlog.OffsetLogWarning")
def test_a_file_of_twenty_gigabytes_takes_no_memory(root, name):
    """Sparse, so it costs its author nothing."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.truncate(20 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with offsetlog.open(str(root)) as log:
        for ask in (log.topics, lambda: log.topic("t").end_offsets(), lambda: send(log)):
            try:
                ask()
            except CorruptLogError:
                continue
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000


@pytest.mark.parametrize("what", ["folder", "pipe", "socket", "link", "dangling", "link out"])
@pytest.mark.parametrize("name", ["_offsetlog.json", str(names.EntryName("t", 1)), "t/_snapshot"])
def test_a_name_that_is_no_file(root, name, what):
    path = root / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    outside = root.parent / "outside"
    outside.write_text('{"format":1,"id":"' + "a" * 32 + '"}')
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "socket":
        os.mknod(path, 0o600 | 0o140000)
    else:
        path.symlink_to({"link": root / "t", "dangling": root / "none"}.get(what, outside))
    before = outside.read_bytes()
    found = everything(root)
    assert outside.read_bytes() == before
    if name.endswith(".parquet"):
        assert any(isinstance(f, StorageError) for f in found)
    if "link" in what or what == "dangling":
        assert any(isinstance(f, StorageError) and "symbolic link" in str(f) for f in found)


def test_a_topic_that_is_a_link_out_of_the_root(root, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(root / "t", other / "u")
    (root / "u").symlink_to(other / "u")
    with offsetlog.open(str(root)) as log:
        assert list(log.topics()) == ["t"]
        with pytest.raises(StorageError, match="symbolic link"):
            log.topic("u").end_offsets()
        with pytest.raises(StorageError, match="symbolic link"):
            log.create_topic("u")


@pytest.mark.parametrize("known", [False, True])
def test_upkeep_over_sftp_deletes_nothing_behind_a_link(sftp, tmp_path, known):
    """A snapshot's name is an entry's name: a link would make of a chain what upkeep deletes."""
    url, options = sftp
    place = f"sftp://{url.split('/')[2]}{tmp_path}"
    for name in ("a", "b"):
        with offsetlog.open(f"{place}/{name}", **options) as log:
            log.create_topic("t")
            with log.producer() as producer:
                for number in range(8):
                    producer.send("t", b"%d" % number).result()
    chain = tmp_path / "b" / "t" / "_log" / "0000000000000000"
    before = {path.name: path.read_bytes() for path in chain.iterdir()}
    with offsetlog.open(f"{place}/a", **options) as log:
        if known:
            log.maintain(grace_ms=0)
        shutil.rmtree(tmp_path / "a" / "t" / "_snapshot", ignore_errors=True)
        (tmp_path / "a" / "t" / "_snapshot").symlink_to(chain)
        for _ in range(5):
            with pytest.raises(StorageError, match="'t/_snapshot' is a symbolic link"):
                log.maintain(grace_ms=0)
    assert {path.name: path.read_bytes() for path in chain.iterdir()} == before


def send_to(log, topic):
    with log.producer() as producer:
        producer.send(topic, b"x").result()


def test_upkeep_deletes_only_what_is_a_snapshot_of_the_topic(root):
    """Entries that somebody put where snapshots lie, and another topic's snapshots."""
    with offsetlog.open(str(root)) as log:
        log.create_topic("u")
        for topic in ("t", "u"):
            for _ in range(3):
                send_to(log, topic)
        log.open_topic("u").stored.publish()
        stored = root / "t" / "_snapshot"
        stored.mkdir(exist_ok=True)
        for entry in (root / "t" / "_log").rglob("*.parquet"):
            shutil.copy2(entry, stored / entry.name)
        [other] = (root / "u" / "_snapshot").glob("0*.parquet")
        shutil.copy2(other, stored / f"{0:019d}9.parquet")
        (stored / f"{0:019d}8.parquet").write_bytes(b"")
        kept = {path.name for path in stored.iterdir()} - {f"{0:019d}8.parquet"}
        for _ in range(20):
            send_to(log, "t")
        for _ in range(4):
            log.maintain("t", grace_ms=0)
            send_to(log, "t")
        left = {path.name for path in stored.glob("0*.parquet")}
        assert kept <= left, "what is none of ours was deleted"
        assert len(left - kept) == 3, "ours were not"


# --- the offsets table ---------------------------------------------------------------------


@pytest.fixture
def table(root):
    with offsetlog.open(str(root)) as log:
        for _ in range(2):
            with log.consumer("billing", enable_auto_commit=False) as consumer:
                consumer.assign([("t", 0)])
                consumer.commit({("t", 0): 1})
    return root / "__consumer_offsets"


def log_file(table: Path, version: int) -> Path:
    return table / "_delta_log" / f"{version:020d}.json"


def asked_of_groups(root: Path) -> list[object]:
    def lag():
        with offsetlog.open(str(root)) as log:
            return log.group("billing").lag()

    def commit():
        with (
            offsetlog.open(str(root)) as log,
            log.consumer("billing", enable_auto_commit=False) as consumer,
        ):
            consumer.assign([("t", 0)])
            consumer.commit({("t", 0): 1})

    out: list[object] = []
    for ask in (lag, lambda: open_offsets(open_store(str(root))).read(1), commit):
        try:
            out.append(ask())
        except OffsetLogError as error:
            out.append(error)
    return out


REFUSED = [
    b"\xff\xfe", b'{"add":' * 100_000, b'{"add":NaN}\n', b'{"add":[]}\n',
    b'{"add":{"path":null}}\n',
    b'{"add":{"path":3}}\n', b"[]\n", b'{"metaData":{"id":"x"}}\n',
    b'{"protocol":{"minReaderVersion":9,"minWriterVersion":9}}\n',
    b'{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["evil"],'
    b'"writerFeatures":["evil"]}}\n',
]  # fmt: skip


@pytest.mark.parametrize("data", REFUSED, ids=lambda d: repr(d[:24]))
def test_a_version_that_no_writer_wrote_is_refused_by_all(root, table, data):
    log_file(table, 3).write_bytes(data)
    shutil.rmtree(table / "_state", ignore_errors=True)
    assert all(isinstance(found, OffsetLogError) for found in asked_of_groups(root))


@pytest.mark.parametrize(
    "name,data",
    [
        ("_last_checkpoint", b"\xff"), ("_last_checkpoint", b'{"version":99,"size":1}'),
        ("_last_checkpoint", b'{"version":2,"size":1,"parts":1000000000}'),
        ("_last_checkpoint", b"[" * 100_000), ("00000000000000000000.json", b"\xff"),
        ("00000000000000000002.checkpoint.parquet", b"PAR1garbagePAR1"),
        ("00000000000000000003.json", b'{"add":null,"add":null}\n'),
    ],
    ids=lambda v: repr(v[:24]),
)  # fmt: skip
def test_other_garbage_in_the_tables_log_is_an_error_of_ours_or_nothing(root, table, name, data):
    (table / "_delta_log" / name).write_bytes(data)
    asked_of_groups(root)


FACT = Fact("billing", "t", 0, 1, "", 5, 1, 0, None, "commit", "v" * 32, 3, 0)
GOOD = fact_rows.to_arrow([FACT])


def with_rows(table: Path, rows: pa.Table, **settings) -> None:
    path = table / "evil.parquet"
    pq.write_table(rows, path, **settings)
    add = {"path": path.name, "size": path.stat().st_size, "partitionValues": {},
           "modificationTime": 1, "dataChange": True}  # fmt: skip
    log_file(table, 3).write_text(json.dumps({"add": add}) + "\n")
    shutil.rmtree(table / "_state", ignore_errors=True)


def replaced(name: str, column: pa.Array) -> pa.Table:
    return GOOD.set_column(GOOD.schema.get_field_index(name), name, column)


BAD_ROWS = {
    "nulls": pa.table({f.name: pa.nulls(3_000_000, f.type) for f in fact_rows.SCHEMA}),
    "struct": replaced("offset", pa.array([{"a": 1}])),
    "list": replaced("offset", pa.array([[1]])),
    "negative": replaced("partition", pa.array([-5], pa.int32())),
    "partition": replaced("partition", pa.array([2**31 - 1], pa.int32())),
    "time": replaced("committed_at", pa.array([2**63 - 1])),
    "text": replaced("group", pa.array([b"\xff\xfe"])),
    "twice": pa.table([*GOOD.columns, GOOD.column(0)], names=[*GOOD.schema.names, "group"]),
    "kind": replaced("kind", pa.array(["conquer"])),
    "generation": replaced("generation", pa.array([2**63 - 1])),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_rows_that_no_writer_wrote_are_refused_by_all(root, table, name):
    with_rows(table, BAD_ROWS[name])
    found = asked_of_groups(root)
    assert all(isinstance(f, OffsetLogError) for f in found[:1] + found[2:]), found


def test_a_topic_of_too_many_partitions_in_a_fact_takes_no_memory(root, table):
    rows = replaced("kind", pa.array(["topics"]))
    rows = rows.set_column(4, "metadata", pa.array(['{"partitions":4611686018427387904,"tip":3}']))
    with_rows(table, rows)
    asked_of_groups(root)


def test_links_in_the_offsets_table_are_not_followed(root, table, tmp_path):
    outside = tmp_path / "facts.json"
    log_file(table, 2).rename(outside)
    log_file(table, 2).symlink_to(outside)
    with pytest.raises(StorageError, match="symbolic link"):
        open_offsets(open_store(str(root))).read(1)


def test_a_heartbeat_of_gigabytes_is_read_in_part(root, table):
    port = open_offsets(open_store(str(root)))
    port.beat("m", "1")
    with (table / "_heartbeats" / "m").open("ab") as file:
        file.truncate(5 << 30)
    assert len(port.look_at_beat("m") or "") == 256


# --- what a user types ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    ["../x,0,1", "t,0,99999999999999999999", "t,-1,0", "t,0,1e3", 't,"0\n', "t,0," + "1" * 200_000],
)
def test_lines_of_a_plan_are_refused_by_number(root, line, tmp_path):
    plan = tmp_path / "plan.csv"
    plan.write_text(line + "\n")
    with offsetlog.open(str(root)) as log, pytest.raises(InvalidRequestError, match="Line 1"):
        log.group("billing").reset("t", from_file=str(plan))


@pytest.mark.parametrize("kind", ["segment", "snapshot", "leaf"])
def test_a_file_that_is_much_too_long_is_not_fetched(tmp_path, monkeypatch, kind):
    """Read up to one byte more than it may have, which is enough to refuse it."""
    root = tmp_path / "log"
    with offsetlog.open(str(root)) as log:
        log.create_topic("orders", partitions=1)
        with log.producer() as producer:
            producer.send("orders", bytes(300_000)).result()
        log.maintain("orders", grace_ms=0)
    folder = {"segment": "partition=0", "snapshot": "_snapshot", "leaf": "_index"}[kind]
    [path] = sorted((root / "orders" / folder).glob("*.parquet"))[-1:]
    with path.open("r+b") as file:
        file.truncate(20 << 30)  # A hole: it takes no room on the disk.
    monkeypatch.setattr("offsetlog.format.snapshots.MAX_SNAPSHOT_BYTES", 1 << 20)
    with offsetlog.open(str(root)) as log:
        consumer = log.consumer(auto_offset_reset="earliest")
        consumer.assign([("orders", 0)])
        if kind == "segment":
            with pytest.raises(CorruptLogError, match=path.name):
                consumer.poll(1.0)
        else:
            assert len(consumer.poll(1.0)) == 1, "it is a cache"
        report = log.verify("orders")
        assert any(path.name in str(fault) for one in report for fault in one.faults + one.caches)


# --- numbers, names and places that nobody checked -----------------------------------------

SEGMENT = SegmentRef(0, "a" * 32, 100, 20, "0" * 16)


@pytest.mark.parametrize(
    "parts",
    [
        [Part(0, 2**62, 1, 0, 0, SEGMENT), Part(0, 2**62, 1, 0, 0, SEGMENT)],
        [Part(0, 2**63 - 1, 1, 0, 0, SEGMENT)],
        [Part(0, 1, 2**62, 0, 0, SEGMENT)] * 2,
        [Part(0, 1, 1, 0, 0, SEGMENT._replace(size=2**63 - 1))],
        [Part(0, 1, 1, 0, 0, SEGMENT._replace(size=2**62, footer_bytes=2**61))],
    ],
    ids=["records", "offsets", "bytes", "size", "footer"],
)
def test_numbers_that_add_up_past_what_there_is(root, parts):
    forge(root, "t", 2, Append("a" * 32, 1, True, 2, 0, 2, "d" * 16, 0, tuple(parts)))
    asked = everything(root)
    assert [type(found) for found in asked[1:3]] == [CorruptLogError] * 2
    assert type(asked[-1]) is CorruptLogError, "nothing is acknowledged behind it"


@pytest.mark.parametrize("name", ["a\\b", "\u00a0", "x\ny", ".tmp-x", "partition=0/a\\b"])
def test_a_foreign_folder_in_a_topics_folder_is_passed_over(root, name):
    (root / "t" / name).mkdir(parents=True)
    (root / "t" / "_log" / "x\\y").mkdir()
    with offsetlog.open(str(root)) as log:
        assert [done.topic for done in log.maintain()] == ["t"]
        log.verify()
        assert send(log).offset == 1
    assert (root / "t" / name).is_dir()


def test_a_position_in_a_topic_whose_name_is_none_is_shown_and_can_be_removed(root, table):
    with_rows(table, replaced("topic", pa.array(["../../x"])))
    with offsetlog.open(str(root)) as log:
        group = log.group("billing")
        [lag] = [one for one in group.describe().partitions if one.topic == "../../x"]
        assert (lag.committed, lag.end, lag.records) == (1, None, None)
        assert group.lag()
        group.delete_offsets("../../x")
        assert "../../x" not in {one.topic for one in group.describe().partitions}
        with pytest.raises(InvalidRequestError, match="not a legal topic name"):
            group.delete_offsets("../../y")


def test_facts_of_millions_of_partitions_do_not_count(root, table):
    """They would be dealt out, partition by partition, in every program that looks."""
    names_ = tuple(f"t{number}" for number in range(30))
    joined = encode_subscription(Subscription(names_, host="h"))
    facts = [Fact("g", None, None, None, joined, 5, 1, 0, "m", "join", "w" * 32, 3, 0)]
    view = encode_topic(TopicView(MAX_PARTITIONS // 10, 1))
    facts += [
        Fact("g", name, None, None, view, 5, 1, 0, None, "topics", "w" * 32, 3, place + 1)
        for place, name in enumerate(names_)
    ]
    ignored: list[str] = []
    state = fold_facts(EMPTY, facts, 3, lambda fact, reason: ignored.append(reason))
    assert (len(state.groups["g"].targets), ignored) == (30 * MAX_PARTITIONS // 10, [])
    monstrous = encode_topic(TopicView(MAX_PARTITIONS, 1))
    facts += [
        Fact("g", f"u{number}", None, None, monstrous, 5, 1, 0, None, "topics", "w" * 32, 4, number)
        for number in range(40)
    ]
    state = fold_facts(EMPTY, facts, 4, lambda fact, reason: ignored.append(reason))
    assert set(ignored) == {"too-many-partitions"} and len(ignored) == 33
    seen = sum(view.partitions for view in state.groups["g"].topics.values())
    assert seen == MAX_GROUP_PARTITIONS


@pytest.mark.parametrize("place", ["log", "topic", "pictures"])
def test_a_place_that_is_no_offsets_table_stays_as_it_is(root, tmp_path, place):
    other = tmp_path / "other"
    with offsetlog.open(str(other)) as log:
        log.create_topic("u")
    where = {"log": other, "topic": other / "u", "pictures": tmp_path / "pictures"}[place]
    where.mkdir(exist_ok=True)
    (where / "a.jpg").touch()
    before = sorted(path.relative_to(where) for path in where.rglob("*"))
    with (
        offsetlog.open(str(root), offsets_table=str(where)) as log,
        pytest.raises(InvalidRequestError, match=r"a\.jpg|'u'|_log"),
        log.consumer("g") as consumer,
    ):
        consumer.subscribe(["t"])
        consumer.poll(0)
    assert sorted(path.relative_to(where) for path in where.rglob("*")) == before


def test_headers_weigh_something(root):
    """Millions of empty ones would unfold to more than a reader takes."""
    with offsetlog.open(str(root)) as log, log.producer() as producer:
        with pytest.raises(InvalidRequestError, match="more than 100,000 headers"):
            producer.send("t", b"", headers=[("", b"")] * 200_000)
        headers = pa.array([[("", b"")] * 200_000], rows.HEADERS)
        with pytest.raises(InvalidRequestError, match="1600000 bytes"):
            producer.send_arrow("t", pa.table({"value": [b""], "headers": headers}))
        with pytest.raises(InvalidRequestError, match="UTF-8|text"):
            producer.send("t", b"", headers=[("\ud800", b"")])
        many = [("", b"")] * 100_000
        for _ in range(20):
            producer.send("t", b"", headers=many, partition=1)
        producer.flush()
        consumer = log.consumer(auto_offset_reset="earliest")
        consumer.assign([("t", 1)])
        got = [len(record.headers) for _ in range(20) for record in consumer.poll(0)]
        assert got == [100_000] * 20
        assert log.maintain() and not any(report.faults for report in log.verify())
