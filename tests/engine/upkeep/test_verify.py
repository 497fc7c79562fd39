"""``verify`` names each fault of what a promise rests on, tells it from a broken cache, and reads
each file once."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import offsetlog
from offsetlog.cli.main import main
from offsetlog.engine.upkeep.findings import delete_caches, status_of
from offsetlog.engine.upkeep.verify import verify_topic
from offsetlog.format import root_file
from offsetlog.storage.open import open_store
from offsetlog.storage.store import Store

TABLE = "__consumer_offsets"


def fill(root: Path | str, commits: int = 60) -> None:
    """A log with segments, inline rows, snapshots and a table that was compacted once."""
    with offsetlog.open(str(root)) as log:
        log.create_topic("t", partitions=2)
        with log.producer() as producer:
            producer.send("t", bytes(300_000), partition=0).result()
            for number in range(40):
                producer.send("t", b"%d" % number, partition=number % 2).result()
        log.open_topic("t").stored.publish()
        with log.consumer("g", enable_auto_commit=False) as consumer:
            consumer.assign([("t", 0), ("t", 1)])
            for number in range(commits):
                consumer.commit({("t", 0): number % 20})
        log.maintain("t", grace_ms=0)
        log.maintain()


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("verify") / "log"
    fill(root)
    return root


@pytest.fixture
def root(filled, tmp_path) -> Path:
    import shutil

    return Path(shutil.copytree(filled, tmp_path / "log"))


def reports(root: Path | str):
    with offsetlog.open(str(root)) as log:
        return log.verify()


def told(root: Path | str) -> tuple[int, str]:
    """The exit status, and all that is said."""
    found = reports(root)
    texts = [text for report in found for text in report.faults]
    return status_of(found), " | ".join(
        texts + [cache.text for report in found for cache in report.caches]
    )


def newest(root: Path, pattern: str) -> Path:
    return sorted(root.glob(pattern))[-1]


def live(table: Path) -> Path:
    """A data file of the newest version."""
    return Path(DeltaTable(str(table)).file_uris()[0].removeprefix("file://"))


def flip(path: Path, at: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    path.write_bytes(data)


def test_a_sound_log_says_what_was_looked_at(root):
    found = {report.topic: report for report in reports(root)}
    assert list(found) == ["_offsetlog.json", "t", TABLE] and status_of(list(found.values())) == 0
    assert found["t"].records == 41 and found[TABLE].records == 60
    assert found[TABLE].entries == len(list((root / TABLE / "_delta_log").glob("*.json")))
    assert found[TABLE].files > 60


def test_a_log_without_groups_is_sound(tmp_path):
    with offsetlog.open(str(tmp_path)) as log:
        log.create_topic("t")
        assert [report.topic for report in log.verify()] == ["_offsetlog.json", "t"]


PROMISES = {
    "a data file is gone": lambda t: live(t).unlink(),
    "a data file was flipped": lambda t: flip(live(t)),
    "the table is gone": lambda t: [p.unlink() for p in (t / "_delta_log").iterdir()],
    "the newest version is torn": lambda t: newest(t, "_delta_log/0*.json").write_text('{"add'),
    "a version is gone": lambda t: [
        p.unlink() for p in (t / "_delta_log").iterdir()
        if p.name in (f"{30:020d}.json", "_last_checkpoint") or "checkpoint" in p.name
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", PROMISES)
def test_a_fault_of_the_offsets_table_breaks_a_promise(root, name):
    PROMISES[name](root / TABLE)
    status, text = told(root)
    assert status == 1, text
    assert TABLE in text


@pytest.mark.parametrize("kind", ["entry", "segment", "root"])
def test_a_fault_of_the_rest_breaks_a_promise(root, kind):
    pattern = {"entry": "t/_log/*/*.parquet", "segment": "t/partition=0/*", "root": "_off*"}[kind]
    flip(newest(root, pattern))
    status, text = told(root)
    assert status == 1 and newest(root, pattern).name in text


CACHES = {
    "a snapshot": "t/_snapshot/0*.parquet",
    "a leaf": "t/_index/*.parquet",
    "the hint": "t/_snapshot/hint.json",
    "the note of stubs": "t/_snapshot/stubs.json",
    "the state of the table": f"{TABLE}/_state/checkpoint.json",
    "Delta's checkpoint": f"{TABLE}/_delta_log/*.checkpoint.parquet",
    "Delta's note": f"{TABLE}/_delta_log/_last_checkpoint",
}


@pytest.mark.parametrize("name", CACHES)
@pytest.mark.parametrize("how", ["torn", "empty"])
def test_a_broken_cache_is_told_apart_and_can_be_deleted(root, name, how, capsys):
    path = newest(root, CACHES[name])
    path.write_bytes(path.read_bytes()[:9] if how == "torn" else b"")
    status, text = told(root)
    assert status == 3 and path.name in text
    assert main(["--root", str(root), "verify"]) == 3
    before = {p for p in root.rglob("*") if p.is_file()}
    assert main(["--root", str(root), "doctor", "--repair-caches"]) == 0
    assert f"deleted {path.relative_to(root)}" in capsys.readouterr().out
    gone = before - {p for p in root.rglob("*") if p.is_file()}
    caches = ("_snapshot", "_index", "_state", "_delta_log")
    assert path in gone and all(p.parent.name in caches for p in gone)
    assert told(root) == (0, "")
    with offsetlog.open(str(root)) as log:
        assert log.topic("t").end_offsets() == {0: 21, 1: 20}
        assert log.group("g").lag() == {("t", 0): 2}


def test_nothing_but_caches_is_ever_deleted(root, capsys):
    newest(root, "t/_snapshot/0*.parquet").write_bytes(b"")
    entry = newest(root, "t/_log/*/*.parquet")
    flip(entry)
    assert main(["--root", str(root), "doctor", "--repair-caches", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert any(entry.name in fault for fault in answer["faults"])
    assert entry.exists()


def test_json_tells_caches_from_faults(root, capsys):
    newest(root, CACHES["the hint"]).write_bytes(b"{")
    assert main(["--root", str(root), "verify", "--json"]) == 3
    answer = {each["topic"]: each for each in json.loads(capsys.readouterr().out)}
    assert answer["t"]["faults"] == [] and not answer["t"]["sound"]
    assert [cache["file"] for cache in answer["t"]["caches"]] == ["t/_snapshot/hint.json"]
    assert answer[TABLE]["sound"]


def test_a_snapshot_beyond_the_chain_is_no_cache_to_delete(root):
    for path in sorted(root.glob("t/_log/*/*.parquet"))[-3:]:
        path.unlink()
    status, text = told(root)
    assert status == 1 and "beyond the end" in text
    found = reports(root)
    with offsetlog.open(str(root)) as log:
        assert [delete_caches(log.store, report) for report in found] == [[], [], []]


def test_a_snapshot_whose_leaf_upkeep_removed_is_a_cache(root):
    for path in root.glob("t/_index/*"):
        path.unlink()
    status, text = told(root)
    assert status == 3 and "is missing" in text and "/_snapshot/" in text


def test_rows_that_somebody_deleted_from_the_table_are_missed(root):
    """Also where the file that holds them is as its version says."""
    path = live(root / TABLE)
    rows = pq.read_table(path)
    pq.write_table(rows.slice(0, rows.num_rows - 1), path)
    for log in (root / TABLE / "_delta_log").glob("0*.json"):
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for line in lines:
            if line.get("add", {}).get("path") == path.name:
                line["add"] |= {"size": path.stat().st_size, "stats": "", "tags": None}
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name in ("_last_checkpoint", "*.checkpoint.parquet"):
        for file in (root / TABLE / "_delta_log").glob(name):
            file.unlink()
    status, text = told(root)
    assert status == 1 and "facts of version" in text and "missing" in text


def test_the_offsets_table_as_a_chain(tmp_path):
    root = f"memory://{tmp_path.name}"
    fill(root, 5)
    store = open_store(root)
    with offsetlog.open(root) as log:
        assert status_of(log.verify()) == 0
        state = f"{TABLE}/_state/checkpoint.json"
        store.put(state, store.get(state)[:-1])
        assert [c.file for c in log.verify()[-1].caches] == [state]
        store.delete([state])
        entry = f"{TABLE}/_log/{0:016d}/{3:020d}.json"
        kept = store.get(entry)
        store.put(entry, kept.replace(b"commit", b"commIt"))
        assert status_of(log.verify()) == 1
        store.delete([entry])
        [fault] = log.verify()[-1].faults
        assert entry in fault and "entry 5 is there" in fault
        store.put(entry, kept)
        assert status_of(log.verify()) == 0


def test_the_table_of_another_log_is_named(root, tmp_path):
    fill(tmp_path / "other", 1)
    import shutil

    shutil.rmtree(root / TABLE)
    shutil.copytree(tmp_path / "other" / TABLE, root / TABLE)
    status, text = told(root)
    assert status == 1 and "belongs to the log" in text


# --- the root's file -----------------------------------------------------------------------


def test_each_flipped_bit_of_the_roots_file_is_found():
    data = root_file.encode("0" * 31 + "a")
    assert root_file.decode(data, "r") == "0" * 31 + "a"
    for at in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            with pytest.raises(offsetlog.OffsetLogError):
                root_file.decode(bytes(changed), "r")


def test_a_root_without_a_sum_is_read():
    for data in (b'{"format":1,"id":"%s"}', b'{"id": "%s", "format": 1}'):
        assert root_file.decode(data % (b"b" * 32), "r") == "b" * 32


# --- what it costs -------------------------------------------------------------------------


class Asked:
    """Wraps a store's ``get`` and counts names."""

    def __init__(self, store: Store) -> None:
        self.names: Counter[str] = Counter()
        self.store = store
        inner = store.get

        def get(name, start=None, end=None):
            self.names[name] += 1
            return inner(name, start, end)

        store.get = get  # type: ignore[method-assign]


@pytest.mark.parametrize("partitions", [3, 300])
def test_each_file_is_read_once_whatever_the_partitions(tmp_path, partitions):
    root = f"memory://{tmp_path.name}"
    keys = pa.table({"key": [b"%d" % n for n in range(3 * partitions)],
                     "value": [b"v"] * 3 * partitions})  # fmt: skip
    with offsetlog.open(root) as log:
        log.create_topic("t", partitions=partitions)
        for _ in range(70):
            with log.producer() as producer:
                producer.send_arrow("t", keys)
        log.open_topic("t").stored.publish()
    store = open_store(root)
    asked = Asked(store)
    report = verify_topic(store, "t")
    assert report.sound and report.records == 70 * 3 * partitions
    entries = {name: count for name, count in asked.names.items() if "/_log/" in name}
    assert len(entries) == report.entries + 1 and set(entries.values()) == {1}
    assert max(asked.names.values()) == 1, asked.names.most_common(3)


def test_a_log_in_use_gives_no_false_alarm(tmp_path):
    """Segments are merged and deleted, snapshots and leaves come and go, while it is verified."""
    root = str(tmp_path)
    ended = threading.Event()
    with offsetlog.open(root) as log:
        log.create_topic("t", partitions=2)

        def use() -> None:
            rng = random.Random(1)
            with log.producer() as producer:
                while not ended.is_set():
                    for partition in (0, 1):
                        producer.send("t", rng.randbytes(150_000), partition=partition)
                        producer.send("t", rng.randbytes(150_000), partition=partition).result()
                    log.maintain(grace_ms=0)

        user = threading.Thread(target=use)
        user.start()
        try:
            for _ in range(8):
                found = reports(root)
                assert not [fault for report in found for fault in report.faults]
                assert not [cache for report in found for cache in report.caches]
        finally:
            ended.set()
            user.join()


# --- more than one fault ---------------------------------------------------------------------


def entry_file(root: Path, number: int) -> Path:
    (path,) = root.glob(f"t/_log/*/{number:020d}.parquet")
    return path


def without_snapshots(root: Path) -> None:
    for kind in ("_snapshot", "_index"):
        for path in (root / "t" / kind).glob("*"):
            path.unlink()


def of_topic(root: Path) -> tuple[tuple[str, ...], str]:
    """The faults of topic t, and its notes."""
    with offsetlog.open(str(root)) as log:
        (report,) = log.verify("t")
    return report.faults, " | ".join(report.notes)


def test_every_broken_entry_and_segment_is_named(root):
    without_snapshots(root)
    for number in (5, 20):
        flip(entry_file(root, number))
    for number in (9, 10, 11, 15):
        entry_file(root, number).unlink()
    flip(newest(root, "t/partition=0/*"))
    faults, notes = of_topic(root)
    for name in (entry_file(root, 5).name, entry_file(root, 20).name):
        assert sum(name in fault for fault in faults) == 1, faults
    assert sum("and those up to 11 are missing" in fault for fault in faults) == 1, faults
    assert sum(f"{15:020d}.parquet is missing" in fault for fault in faults) == 1, faults
    assert sum(newest(root, "t/partition=0/*").name in fault for fault in faults) == 1, faults
    assert "behind entry 5" in notes
    assert len(faults) == 5, faults


def test_behind_a_snapshot_the_fold_goes_on(root):
    """What is needed of the broken entry is named, and a segment that is missing later is too."""
    with offsetlog.open(str(root)) as log, log.producer() as producer:
        log.open_topic("t").stored.publish()
        producer.send("t", bytes(300_000), partition=1).result()
    flip(entry_file(root, 20))
    missing = newest(root, "t/partition=1/*")
    missing.unlink()
    faults, notes = of_topic(root)
    assert any(f"{missing.name} is missing" in fault for fault in faults), faults
    assert "entries 20 to" in notes and "was believed in their place" in notes
    assert sum(entry_file(root, 20).name in fault for fault in faults) in (1, 2), faults
    assert "can't be told" not in notes


def test_a_broken_entry_whose_rows_are_needed_names_their_offsets(tmp_path):
    root = tmp_path / "log"
    with offsetlog.open(str(root)) as log:
        log.create_topic("t")
        with log.producer() as producer:
            for number in range(5):
                producer.send("t", b"%d" % number).result()
        log.open_topic("t").stored.publish()
    flip(entry_file(root, 3))
    faults, notes = of_topic(root)
    assert any("offsets 2 to 3 of partition 0 need them" in fault for fault in faults), faults


def test_without_entry_0_the_rest_is_looked_at(root):
    entry_file(root, 0).unlink()
    flip(entry_file(root, 20))
    faults, notes = of_topic(root)
    assert any(f"{0:020d}.parquet is missing" in fault for fault in faults), faults
    assert any(entry_file(root, 20).name in fault for fault in faults), faults


def test_a_create_that_was_interrupted_is_no_fault(root, capsys):
    (root / "later" / "_log" / f"{0:010d}").mkdir(parents=True)
    status, _ = told(root)
    assert status == 0
    assert main(["--root", str(root), "verify", "later"]) == 0
    assert "interrupted" in capsys.readouterr().out
    (root / "later" / "partition=0").mkdir()
    (newest(root, "t/partition=0/*")).rename(
        root / "later" / "partition=0" / newest(root, "t/partition=0/*").name
    )
    assert "there is no entry 0" in told(root)[1]
