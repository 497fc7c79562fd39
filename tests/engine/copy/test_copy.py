"""A copy is a sound log of its own whenever it is a log, from any filesystem to any."""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path

import pytest
from deltalake import DeltaTable

import offsetlog
from offsetlog.cli.main import main
from offsetlog.engine.copy.note import COPY_NOTE
from offsetlog.engine.upkeep.maintenance import Maintenance
from offsetlog.errors import InvalidRequestError, OffsetLogError, UnknownTopicError
from offsetlog.format import root_file
from offsetlog.storage.delta.table import DeltaOffsets
from offsetlog.storage.open import open_store
from tests.engine.copy import tables
from tests.engine.copy.sameness import contents, is_sound, live

ROOT = "_offsetlog.json"
pytestmark = pytest.mark.filterwarnings("ignore::offsetlog.OffsetLogWarning")


def filled(root: str, seed: int = 1, steps: int = 25) -> offsetlog.Log:
    log = offsetlog.open(root)
    log.create_topic("a", partitions=2)
    with log.producer() as producer:
        producer.send("a", b"first").result()
    live(log, random.Random(seed), steps)
    return log


@pytest.fixture
def log(tmp_path):
    with filled(str(tmp_path / "log")) as log:
        yield log


def place(kind: str, tmp_path: Path, name: str) -> str:
    return str(tmp_path / name) if kind == "disk" else f"memory://{tmp_path.name}-{name}"


@pytest.mark.parametrize("to", ["disk", "memory"])
@pytest.mark.parametrize("of", ["disk", "memory"])
def test_a_copy_is_the_same_and_stays_it_when_copied_again(tmp_path, of, to):
    """The offsets table is a Delta table on a disk and a chain in memory."""
    source, target = place(of, tmp_path, "log"), place(to, tmp_path, "copy")
    rng = random.Random(of + to)
    with filled(source, len(of + to), 15) as log:
        for _ in range(3):
            report = log.copy(target)
            assert report.id != log.root_id == report.source_id
            assert contents(target) == contents(source)
            is_sound(target)
            live(log, rng)
        log.copy(target)
        report = log.copy(target)
        assert sum(topic.new_entries for topic in report.topics) == 0


def test_a_copy_of_a_copy_and_one_that_goes_its_own_way(log, tmp_path):
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    log.copy(first)
    with offsetlog.open(first) as copy:
        copy.copy(second)
        live(copy, random.Random(7), 15)  # From here on it is a log as any other.
        is_sound(first)
        copy.copy(second)
        assert contents(second) == contents(first)
    live(log, random.Random(8), 5)
    with pytest.raises(InvalidRequestError, match=r"first was written to since"):
        log.copy(first)
    is_sound(first)


@pytest.mark.parametrize("how", ["records", "groups", "upkeep"])
def test_a_copy_that_was_written_to_is_refused_by_name(log, tmp_path, how):
    target = str(tmp_path / "copy")
    log.copy(target)
    with offsetlog.open(target) as copy:
        if how == "records":
            with copy.producer() as producer:
                producer.send("a", b"mine").result()
        elif how == "groups":
            copy.group("g").reset("a", to="latest", dry_run=False)
        else:
            copy.maintain(grace_ms=0)
    before = contents(target)
    for _ in range(2):
        with log.producer() as producer:
            producer.send("a", b"theirs").result()
        with log.consumer("g", ["a"]) as consumer:
            consumer.poll(0)
        with pytest.raises(InvalidRequestError, match="was written to since"):
            log.copy(target)
    after = contents(target)
    assert after["groups"] == before["groups"]
    assert (
        after["records"].items()
        >= {k: v for k, v in before["records"].items() if len(k) == 3}.items()
    )


def test_only_some_topics_and_groups(log, tmp_path):
    with log.producer() as producer:
        for name in ("x", "y"):
            log.create_topic(name)
            producer.send(name, b"1").result()
    for group in ("one", "two"):
        log.group(group).reset("x", to="latest", dry_run=False)
    target = str(tmp_path / "copy")
    log.copy(target, topics=["x"], groups=["two"])
    with offsetlog.open(target) as copy:
        assert list(copy.topics()) == ["x"] and list(copy.groups()) == ["two"]
        assert copy.group("two").lag() == {("x", 0): 0}
    is_sound(target)
    log.group("one").reset("x", to="earliest", dry_run=False)
    log.group("two").reset("x", to="earliest", dry_run=False)
    log.copy(target, topics=["x"], groups=["two"])
    with offsetlog.open(target) as copy:
        assert list(copy.groups()) == ["two"] and copy.group("two").lag() == {("x", 0): 1}
    with pytest.raises(InvalidRequestError, match="begun with the topics x and the groups two"):
        log.copy(target)
    with pytest.raises(UnknownTopicError, match="nothere"):
        log.copy(str(tmp_path / "other"), topics=["nothere"])
    with pytest.raises(InvalidRequestError, match="no group 'nothere'"):
        log.copy(str(tmp_path / "other"), groups=["nothere"])
    assert not (tmp_path / "other").exists()


def test_groups_that_begin_after_the_first_copy(tmp_path):
    with offsetlog.open(str(tmp_path / "log")) as log:
        log.create_topic("a")
        with log.producer() as producer:
            producer.send("a", b"1").result()
        log.copy(str(tmp_path / "copy"))
        log.group("g").reset("a", to="latest", dry_run=False)
        log.copy(str(tmp_path / "copy"))
    assert contents(str(tmp_path / "copy")) == contents(str(tmp_path / "log"))


# --- what is refused -----------------------------------------------------------------------


def test_places_that_hold_something_else_are_refused_by_name(log, tmp_path):
    with offsetlog.open(str(tmp_path / "other")) as other:
        other.create_topic("t")
        with pytest.raises(InvalidRequestError, match=f"holds the log {other.root_id}"):
            log.copy(str(tmp_path / "other"))
        other.copy(str(tmp_path / "copy of other"))
    with pytest.raises(InvalidRequestError, match="holds a copy of the log"):
        log.copy(str(tmp_path / "copy of other"))
    with pytest.raises(InvalidRequestError, match=f"holds the log {log.root_id}"):
        log.copy(log.url)
    with pytest.raises(InvalidRequestError, match="lies in"):
        log.copy(f"{log.url}/below")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(InvalidRequestError, match=r"not empty: it holds 'notes\.txt'"):
        log.copy(str(tmp_path / "full"))
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["notes.txt"]
    with pytest.raises(InvalidRequestError, match="no log at"):
        offsetlog.open(str(tmp_path / "nothing")).copy(str(tmp_path / "x"))


def test_a_copy_in_the_making_is_no_log(log, tmp_path, monkeypatch, capsys):
    """Nor for libraries that know of no copies: its root's file is of a newer format."""
    target = tmp_path / "copy"
    monkeypatch.setattr("offsetlog.engine.copy.copy.OffsetsCopy.bring_up", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        log.copy(str(target))
    assert b'"format":2' in (target / ROOT).read_bytes()
    asks = [
        lambda there: there.topics(),
        lambda there: there.create_topic("new"),
        lambda there: there.groups(),
        lambda there: there.copy(str(tmp_path / "third")),
        lambda there: there.topic("a"),
    ]
    for ask in asks:
        with (
            offsetlog.open(str(target)) as there,
            pytest.raises(InvalidRequestError, match="copy of the log .* not complete"),
        ):
            ask(there)
    assert main(["--root", str(target), "verify"]) == 1
    assert "not complete" in capsys.readouterr().out
    with offsetlog.open(str(tmp_path / "other")) as other:
        other.create_topic("t")
        with pytest.raises(InvalidRequestError, match="holds a copy of the log"):
            other.copy(str(target))
    monkeypatch.undo()
    log.copy(str(target))
    assert contents(str(target)) == contents(log.url)
    is_sound(str(target))


def test_a_flipped_segment_or_entry_is_never_copied(log, tmp_path):
    with log.producer() as producer:
        producer.send("a", bytes(300_000)).result()
    [*_, path] = sorted(Path(log.url.removeprefix("file://")).glob("a/partition=*/*.parquet"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(OffsetLogError, match=path.name):
        log.copy(str(tmp_path / "copy"), topics=["a"])
    with pytest.raises(InvalidRequestError, match="not complete"):
        offsetlog.open(str(tmp_path / "copy")).topics()
    with pytest.raises(OffsetLogError, match=path.name):
        log.copy(str(tmp_path / "others"))
    with offsetlog.open(str(tmp_path / "others")) as copy:
        assert "a" not in copy.topics()
    is_sound(str(tmp_path / "others"))


# --- its offsets table ---------------------------------------------------------------------


def test_the_table_of_a_copy_is_its_own_and_reads_as_delta(log, tmp_path):
    log.group("g").reset("a", to="latest", dry_run=False)
    target = tmp_path / "copy"
    report = log.copy(str(target))
    table = DeltaTable(str(target / "__consumer_offsets"))
    assert table.version() == report.offsets_version
    assert table.metadata().configuration["offsetlog.root"] == report.id
    note = (target / "__consumer_offsets" / "_delta_log" / "_last_checkpoint").read_text()
    assert report.id in note and report.source_id not in note
    for _ in range(3):
        log.group("g").reset("a", to="earliest", dry_run=False)
    log.copy(str(target))
    assert DeltaTable(str(target / "__consumer_offsets")).version() == report.offsets_version + 3
    for path in (ROOT, COPY_NOTE):
        assert report.id in (target / path).read_text()


def test_the_table_of_a_copy_waits_for_what_a_log_start_cuts(tmp_path):
    """Nobody may divide a file in a copy: what the log has of it stays in the table."""
    target = tmp_path / "copy"
    with offsetlog.open(str(tmp_path / "log")) as log:
        log.create_topic("d", partitions=2, config={"table.format": "delta"})

        def send(count: int) -> None:
            with log.producer() as producer:
                for n in range(2 * count):
                    producer.send("d", b"%d" % n, partition=n % 2)

        send(1000)
        log.maintain()
        log.copy(str(target))
        seen = tables.look(target, None, is_fresh=True)
        log.topic("d").delete_records({0: 10})
        log.copy(str(target))
        seen = tables.look(target, seen, is_fresh=False)
        # A log start that cuts a file at each copy does not keep what came before from the table.
        for before in (20, 30):
            send(100)
            log.maintain()
            log.topic("d").delete_records({0: before})
            log.copy(str(target))
            seen = tables.look(target, seen, is_fresh=False)
        assert seen.ends == {0: 1200, 1: 1200}
        log.maintain()
        log.copy(str(target))
        tables.look(target, seen, is_fresh=True)


@pytest.mark.parametrize("seed", range(4))
def test_the_table_of_a_copy_never_loses_a_record_of_the_log(tmp_path, seed):
    tables.history(random.Random(seed), tmp_path, 8)


# --- in use --------------------------------------------------------------------------------


def test_a_log_in_use_is_copied_as_it_was_at_a_moment(tmp_path):
    """Somebody writes, commits, maintains without grace: each copy is sound, and a prefix."""
    source, target = str(tmp_path / "log"), str(tmp_path / "copy")
    ended = threading.Event()
    with filled(source) as log:

        def use() -> None:
            rng = random.Random(3)
            while not ended.is_set():
                live(log, rng, 1)

        user = threading.Thread(target=use)
        user.start()
        try:
            with offsetlog.open(source) as reader:
                for _ in range(3):
                    reader.copy(target)
                    is_sound(target)
                    with offsetlog.open(target) as copy:
                        state = copy.offsets_table.look()
                        for group in state.groups.values():
                            for (name, partition), position in group.positions.items():
                                if name in copy.topics():
                                    end = copy.topic(name).end_offsets().get(partition, 0)
                                    assert position.offset <= end
        finally:
            ended.set()
            user.join()
        log.copy(target)
        assert contents(target) == contents(source)


def test_a_copy_is_given_what_collection_freed(log, tmp_path):
    """A copy that is brought up to date for years takes what its source takes."""
    target = str(tmp_path / "copy")
    log.copy(target)
    for _ in range(3):
        with log.producer() as producer:
            for _ in range(4):
                producer.send("a", bytes(300_000), partition=0).result()
        log.maintain("a", grace_ms=0)
        log.copy(target)
    held = [len(list((tmp_path / root / "a").glob("partition=*/*"))) for root in ("log", "copy")]
    assert held[0] == held[1], held
    assert contents(target) == contents(log.url)


def test_what_a_killed_copy_did_not_free_goes_though_nothing_new_comes(tmp_path, monkeypatch):
    secret, copy = b"ann-of-green-gables", tmp_path / "copy"

    def holding() -> list[Path]:
        files = [path for path in copy.rglob("*") if path.is_file()]
        return [path for path in files if secret in path.read_bytes()]

    with offsetlog.open(str(tmp_path / "log")) as log:
        log.create_topic("a", config={"compression.type": "none"})
        with log.producer() as producer:
            producer.send("a", b"value", key=secret).result()
        log.copy(str(copy))
        log.topic("a").delete_records({0: 1})
        log.maintain("a", grace_ms=0)
        with monkeypatch.context() as killed:
            killed.setattr(Maintenance, "_stub", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                log.copy(str(copy))
        assert len(holding()) == 1
        log.copy(str(copy))
        assert not holding()


# --- failures ------------------------------------------------------------------------------


def test_failures_that_pass_are_tried_again(log, tmp_path, monkeypatch):
    store = open_store(f"memory://{tmp_path.name}")
    rng = random.Random(5)
    for name in ("put", "info"):
        inner = getattr(store, name)

        def flaky(*args, inner=inner, **more):
            if rng.random() < 0.2:
                raise offsetlog.StorageError("the network is slow")
            return inner(*args, **more)

        monkeypatch.setattr(store, name, flaky)
    monkeypatch.setattr("offsetlog.client.log.open_store", lambda url, **options: store)
    monkeypatch.setattr("offsetlog.engine.copy.transfer.TRIES", 30)
    monkeypatch.setattr(log, "env", log.env._replace(sleep=lambda seconds: None))
    log.copy("memory://x")
    assert contents(f"memory://{tmp_path.name}") == contents(log.url)


def test_the_mark_of_a_copy_is_checked():
    marked = root_file.encode("a" * 32, "b" * 32)
    assert root_file.read(marked, "r")[:3] == (2, "a" * 32, "b" * 32)
    with pytest.raises(InvalidRequestError, match="not complete"):
        root_file.decode(marked, "r")


def test_a_source_whose_facts_somebody_took_out_is_an_error(log, tmp_path):
    """The copy has them, and a fact is never taken back there."""
    target = str(tmp_path / "copy")
    log.group("g").reset("a", to="latest", dry_run=False)
    place = str(tmp_path / "log" / "__consumer_offsets")
    version = DeltaTable(place).version()
    log.group("g").reset("a", to="earliest", dry_run=False)
    log.copy(target)
    before = contents(target)
    DeltaTable(place).restore(version)
    with pytest.raises(InvalidRequestError, match=r"changed rows .*RESTORE.*another place"):
        log.copy(target)
    assert contents(target)["groups"] == before["groups"]
    log.copy(str(tmp_path / "another"))
    assert contents(str(tmp_path / "another"))["groups"] == contents(log.url)["groups"]


# --- the command ---------------------------------------------------------------------------


def test_the_command_says_what_it_did(log, tmp_path, capsys):
    source, target = log.url.removeprefix("file://"), str(tmp_path / "copy")
    for new in (True, False):
        assert main(["copy", source, target, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["source_id"] == log.root_id != told["id"]
        assert all((topic["new_entries"] > 0) is new for topic in told["topics"])
    assert main(["--root", target, "verify"]) == 0
    capsys.readouterr()
    assert main(["copy", source, source]) == 2
    assert "Choose an empty place" in capsys.readouterr().err
    assert main(["copy", source, str(tmp_path / "x"), "--groups", "nothere"]) == 2
    assert main(["copy", str(tmp_path / "nothing"), str(tmp_path / "x")]) == 2
    assert "no log at" in capsys.readouterr().err and not (tmp_path / "x").exists()


def test_versions_without_facts_are_copied_with_one_reading_of_the_table(tmp_path, monkeypatch):
    """Each one read all of the log again, and then the next version with facts did."""
    with offsetlog.open(str(tmp_path / "source")) as log:
        log.create_topic("t", partitions=1)
        with log.producer() as producer:
            for _ in range(100):
                producer.send("t", b"x")
        log.group("g").reset("t", to="earliest", dry_run=False)
        log.copy(str(tmp_path / "copy"))
        for offset in range(30):
            log.group("g").reset("t", to=offset, dry_run=False)
            if offset % 2:
                log.maintain(grace_ms=0)
        opened = []
        true = DeltaOffsets._open_own
        monkeypatch.setattr(DeltaOffsets, "_open_own", lambda self: opened.append(1) or true(self))
        version = log.copy(str(tmp_path / "copy")).offsets_version
    assert version > 30
    assert len(opened) < 20


def break_entry(log, topic: str, number: int) -> Path:
    (path,) = Path(log.url.removeprefix("file://")).glob(f"{topic}/_log/*/{number:020d}.parquet")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("is_new", [True, False])
def test_a_broken_topic_does_not_keep_the_others_from_being_copied(tmp_path, is_new, capsys):
    source, target = str(tmp_path / "log"), str(tmp_path / "copy")
    with offsetlog.open(source) as log:
        for name in ("a", "b", "c"):
            log.create_topic(name)
        if not is_new:
            log.copy(target)
        with log.producer() as producer:
            for name in ("a", "b", "c"):
                producer.send(name, b"1").result()
                producer.send(name, b"2").result()
    with offsetlog.open(source) as log:
        path = break_entry(log, "b", 1)
        with pytest.raises(OffsetLogError, match=path.name) as caught:
            log.copy(target)
    assert "'b'" in str(caught.value) and "The rest of it is complete" in str(caught.value)
    with offsetlog.open(target) as copy:
        assert copy.topics() == (["a", "c"] if is_new else ["a", "b", "c"])
        assert [copy.topic(name).end_offsets()[0] for name in ("a", "c")] == [2, 2]
    assert main(["--root", target, "verify"]) == 0
    capsys.readouterr()
    assert main(["copy", source, target]) == 1
    told = capsys.readouterr()
    assert path.name in told.err and "complete; its id" not in told.out and "c " in told.out
    path.write_bytes(
        bytes(b ^ (i == path.stat().st_size // 2) for i, b in enumerate(path.read_bytes()))
    )
    assert main(["copy", source, target]) == 0
    assert contents(target) == contents(source)


def test_a_topic_that_was_recreated_in_the_source_is_not_blamed_on_the_copy(log, tmp_path):
    target = str(tmp_path / "copy")
    log.copy(target)
    log.delete_topic("a", purge=True)
    log.create_topic("a")
    log.create_topic("later")
    with pytest.raises(OffsetLogError, match="purged and created again") as caught:
        log.copy(target)
    assert "was written to" not in str(caught.value)
    with offsetlog.open(target) as copy:
        assert "later" in copy.topics()
        copy.delete_topic("a", purge=True)
    log.copy(target)
    assert contents(target) == contents(log.url)
    is_sound(target)
