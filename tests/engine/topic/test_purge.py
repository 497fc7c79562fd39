"""A purge removes what is the topic's, and a topic is made where nothing else is."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

import offsetlog
from offsetlog.errors import CorruptLogError, InvalidRequestError, UnknownTopicError
from offsetlog.format import names
from tests.cli.shell import offsetlog as command

pytestmark = pytest.mark.root_in("local", "memory")


def fill(log, topic: str = "t") -> None:
    """A topic with everything that one can have: small and large appends, upkeep, a snapshot."""
    log.create_topic(topic, partitions=2)
    with log.producer() as producer:
        for number in range(6):
            for partition in range(2):
                producer.send(topic, bytes(300_000 * (number % 2)), partition=partition).result()
    log.maintain(topic)
    log.open_topic(topic).stored.publish()


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


OTHERS = ("notes.txt", "partition=0/IMG_1.jpg", "_snapshot/mine.parquet", "album/a.jpg",
          "_log/0000000000000000/readme", "_log/7.parquet", "partition=00/x.parquet",
          "_delta_log/notes.json", "_index/deep/er/x")  # fmt: skip


@pytest.fixture
def shared(tmp_path):
    """A topic's folder that others put their things into."""
    root = tmp_path / "log"
    with offsetlog.open(str(root)) as log:
        fill(log)
        fill(log, "u")
    for name in OTHERS:
        (root / "t" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "t" / name).write_bytes(b"mine")
    for name in ("00000000000000000003.json", "_last_checkpoint"):
        (root / "t" / "_delta_log" / name).write_bytes(b"the table's")
    (root / "t" / "_log" / "0000000000000000" / ".tmp-1-2").write_bytes(b"a killed writer's")
    return root


def test_a_purge_leaves_what_is_not_the_topics(shared):
    kept = {name for name in files(shared) if not name.startswith("t/")}
    with offsetlog.open(str(shared)) as log:
        log.delete_topic("t", purge=True)
        assert files(shared) == kept | {f"t/{name}" for name in OTHERS}
        assert all((shared / "t" / name).read_bytes() == b"mine" for name in OTHERS)
        assert list(log.topics()) == ["u"]


def test_a_purge_tells_before_and_after_what_it_removes_and_leaves(shared):
    there = files(shared / "t")
    with offsetlog.open(str(shared)) as log:
        plan = log.purge_plan("t")
        assert files(shared / "t") == there
        done = log.delete_topic("t", purge=True)
    # The delete is one more entry; a temporary counts for nothing.
    assert done.files == plan.contents.files + 1 == len(there) - len(OTHERS) - 1 + 1
    assert done.others == plan.contents.others and not done.more
    left = {"t/notes.txt", "t/partition=0/IMG_1.jpg", "t/album/", "t/_index/deep/"}
    assert left < set(done.others)


def test_a_purge_leaves_nothing_of_a_topic_alone_in_its_folder(log):
    fill(log)
    plan = log.purge_plan("t")
    assert plan.records == 12 and plan.contents.files and plan.address == f"{log.url}/t"
    done = log.delete_topic("t", purge=True)
    assert done.bytes >= plan.contents.bytes and done.others == ()
    assert list(log.store.folders("")) == []
    log.create_topic("t")
    assert log.topic("t").end_offsets() == {0: 0}


@pytest.mark.parametrize("server", ["moto", "azurite", "sftp", "smb"])
def test_a_purge_on_a_server(server, request):
    url, options = request.getfixturevalue(server)
    with offsetlog.open(f"{url}/purge", **options) as log:
        fill(log)
        fill(log, "t2")
        log.store.put("t/notes.txt", b"mine")
        log.store.put("t/partition=0/mine.jpg", b"mine")
        done = log.delete_topic("t", purge=True)
        assert set(done.others) == {"t/notes.txt", "t/partition=0/mine.jpg"}
        assert log.store.get("t/notes.txt") == log.store.get("t/partition=0/mine.jpg") == b"mine"
        assert list(log.store.list("t/_snapshot")) == []
        assert list(log.topics()) == ["t2"]
        log.delete_topic("t2", purge=True)
        assert "t2" not in set(log.store.folders(""))
        log.store.delete_tree("")


def test_a_link_in_a_topic_is_left_with_what_it_leads_to(tmp_path):
    root, outside = tmp_path / "log", tmp_path / "outside"
    (outside / "partition=0").mkdir(parents=True)
    photo = outside / "partition=0" / f"{0:020d}-{'a' * 32}.parquet"
    photo.write_bytes(b"mine")
    with offsetlog.open(str(root)) as log:
        fill(log)
        (root / "t" / "partition=7").symlink_to(outside / "partition=0")
        done = log.delete_topic("t", purge=True)
    assert photo.read_bytes() == b"mine"
    assert done.others == ("t/",)
    assert [path.name for path in (root / "t").iterdir()] == ["partition=7"]


@pytest.mark.parametrize("what", ["IMG.jpg", "2024/IMG.jpg", "_log.txt", "partition=x/a"])
def test_no_topic_is_made_of_a_folder_that_holds_something_else(tmp_path, what):
    path = tmp_path / "home" / "photos" / what
    path.parent.mkdir(parents=True)
    path.write_bytes(b"mine")
    with offsetlog.open(str(tmp_path / "home")) as log:
        with pytest.raises(InvalidRequestError, match="photos holds what is no part") as caught:
            log.create_topic("photos")
        assert what.split("/")[0] in str(caught.value)
        assert files(tmp_path / "home") == {f"photos/{what}"}, "no root was made either"
        log.create_topic("other")
        with pytest.raises(InvalidRequestError, match="photos holds what is no part"):
            log.create_topic("photos")
        with pytest.raises(UnknownTopicError):
            log.delete_topic("photos", purge=True)
    assert path.read_bytes() == b"mine"


def test_an_empty_folder_is_as_good_as_none(tmp_path):
    (tmp_path / "log" / "t" / "_log").mkdir(parents=True)
    with offsetlog.open(str(tmp_path / "log")) as log:
        log.create_topic("t")
        assert list(log.topics()) == ["t"]


def test_no_root_above_or_below_another_one(tmp_path):
    with offsetlog.open(str(tmp_path / "data" / "log")) as log:
        fill(log, "inner")
    before = files(tmp_path)
    with (
        offsetlog.open(str(tmp_path / "data")) as log,
        pytest.raises(InvalidRequestError, match="is the root of another log"),
    ):
        log.create_topic("log")
    for below in ("inner", "inner/partition=0", "inner/a/b/c", "__consumer_offsets/x"):
        with (
            offsetlog.open(str(tmp_path / "data" / "log" / below)) as log,
            pytest.raises(InvalidRequestError, match="lies in '(inner|__consumer_offsets)'"),
        ):
            log.create_topic("t")
    assert files(tmp_path) == before
    (tmp_path / "link").symlink_to(tmp_path / "data" / "log" / "inner")
    with (
        offsetlog.open(str(tmp_path / "link" / "x")) as log,
        pytest.raises(InvalidRequestError, match="lies in 'inner'"),
    ):
        log.create_topic("t")
    with offsetlog.open(str(tmp_path / "data" / "beside")) as log:
        log.create_topic("t")


@pytest.mark.parametrize("server", ["memory", "moto", "azurite", "sftp", "smb"])
def test_no_root_in_another_ones_topic_on_a_server(server, request, tmp_path):
    url, options = f"memory://{tmp_path.name}", {}
    if server != "memory":
        url, options = request.getfixturevalue(server)
    with offsetlog.open(f"{url}/roots/outer", **options) as outer:
        outer.create_topic("inner")
        with offsetlog.open(f"{url}/roots/outer/inner/x/y", **options) as log:
            with pytest.raises(InvalidRequestError, match="lies in 'inner' of the log at") as said:
                log.create_topic("t")
            assert f"{outer.url}," in str(said.value)
        with (
            offsetlog.open(f"{url}/roots", **options) as log,
            pytest.raises(InvalidRequestError, match="is the root of another log"),
        ):
            log.create_topic("outer")
        outer.store.delete_tree("")


# --- topics that are broken ----------------------------------------------------------------


@pytest.fixture
def broken(tmp_path):
    """A log with three topics, of which the one in the middle can't be read."""
    root = tmp_path / "log"
    with offsetlog.open(str(root)) as log:
        for name in ("a", "b", "c"):
            fill(log, name)
    path = root / str(names.EntryName("b", 1))
    path.write_bytes(path.read_bytes()[:-9] + b"x" * 9)
    for cache in (root / "b" / "_snapshot").iterdir():
        cache.unlink()
    return root


def test_topics_tells_of_the_others_and_names_the_broken_one(broken):
    with offsetlog.open(str(broken)) as log:
        with pytest.warns(
            offsetlog.OffsetLogWarning, match="/b can't be read, and is not listed"
        ) as warned:
            assert list(log.topics()) == ["a", "c"]
        assert len(warned) == 1 and names.EntryName("b", 1).__str__() in str(warned[0].message)
    shown = command("--root", str(broken), "topics", "list")
    assert shown.status == 0 and "can't be read" in shown.err
    assert [line.split()[0] for line in shown.lines[1:]] == ["a", "c"]


@pytest.mark.parametrize("error", [None, MemoryError("no room"), ValueError("odd")], ids=repr)
def test_upkeep_goes_on_past_a_broken_topic_and_tells_of_it(broken, error, monkeypatch):
    from offsetlog.engine.upkeep.maintenance import Maintenance

    run, looked_at = Maintenance.run, []

    def runs(self):
        looked_at.append(self._topic.name)
        if error is not None and self._topic.name == "a":
            raise error
        return run(self)

    monkeypatch.setattr(Maintenance, "run", runs)
    with offsetlog.open(str(broken)) as log:
        failed = [CorruptLogError] if error is None else [CorruptLogError, offsetlog.OffsetLogError]
        with pytest.raises(failed[0]) as caught:
            if error is None:
                log.maintain()
            else:
                with pytest.warns(
                    offsetlog.OffsetLogWarning, match="'a' was not maintained"
                ) as warned:
                    log.maintain()
                assert repr(error) in str(warned[0].message)
        assert str(names.EntryName("b", 1)) in str(caught.value)
    assert looked_at == ["a", "c"]


@pytest.mark.parametrize("how", ["entry", "first", "link", "others"])
def test_a_broken_topic_can_be_purged(broken, how):
    if how == "first":
        (broken / str(names.EntryName("b", 0))).write_bytes(b"junk")
    elif how == "link":
        (broken / "b" / "_index").rename(broken.parent / "elsewhere")
        (broken / "b" / "_index").symlink_to(broken.parent / "elsewhere")
    elif how == "others":
        (broken / str(names.EntryName("b", 0))).unlink()
    with offsetlog.open(str(broken)) as log:
        with pytest.raises(offsetlog.OffsetLogError):
            log.topic("b")
        if how != "others":
            assert log.purge_plan("b").records is None
        log.delete_topic("b", purge=True)
        assert list(log.topics()) == ["a", "c"]
        if how != "link":
            assert not (broken / "b").exists()
            log.create_topic("b")
            assert list(log.topics()) == ["a", "b", "c"]


@pytest.mark.filterwarnings("ignore::offsetlog.OffsetLogWarning")
def test_an_interrupted_purge_is_ended_by_the_next(tmp_path, monkeypatch):
    root = tmp_path / "log"
    for most in range(8):
        with offsetlog.open(str(root)) as log:
            log.create_topic("t")
            with log.producer() as producer:
                producer.send("t", bytes(300_000)).result()
                producer.send("t", b"x").result()
            log.open_topic("t").stored.publish()
            left, delete = [most], log.store.delete

            def dies(names, left=left, delete=delete):
                for name in names:
                    if not left[0]:
                        raise KeyboardInterrupt
                    left[0] -= 1
                    delete([name])

            monkeypatch.setattr(log.store, "delete", dies)
            with contextlib.suppress(KeyboardInterrupt):
                log.delete_topic("t", purge=True)
        with offsetlog.open(str(root)) as log:
            assert list(log.topics()) == [], "what is left of it is no topic"
            if (root / "t").exists():
                log.delete_topic("t", purge=True)
            assert not (root / "t").exists()


# --- the command line ----------------------------------------------------------------------


@pytest.mark.parametrize("words", [[], ["--purge"], ["--purge", "--yes"], ["--if-exists"]])
def test_where_there_is_no_log_there_is_nothing_to_delete(words, tmp_path):
    """A folder with files of names like ours is not a topic below what is no log."""
    with offsetlog.open(str(tmp_path / "log")) as log:
        fill(log)
    (tmp_path / "log" / names.ROOT_FILE).unlink()
    kept = sorted(path for path in tmp_path.rglob("*"))
    result = command("--root", str(tmp_path / "log"), "topics", "delete", "t", *words)
    assert result.status == 2 and "There is no log at" in result.err, result
    assert sorted(path for path in tmp_path.rglob("*")) == kept
    with offsetlog.open(str(tmp_path / "log")) as log:
        for refused in (lambda: log.delete_topic("t", purge=True), lambda: log.purge_plan("t")):
            with pytest.raises(InvalidRequestError, match="There is no log"):
                refused()
    assert sorted(path for path in tmp_path.rglob("*")) == kept


def test_what_is_left_is_told_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with offsetlog.open("log") as log:
        fill(log)
    (tmp_path / "log" / "t" / "notes.txt").write_bytes(b"mine")
    result = command("--root", "log", "topics", "delete", "t", "--purge", "--yes")
    assert (result.status, result.text) == (0, "Purged topic t.\n")
    assert "Kept what is not the topic's: 't/notes.txt'." in result.err
    (tmp_path / "log" / "t" / "notes.txt").unlink()
    with offsetlog.open("log") as log:
        fill(log)
    (tmp_path / "log" / "t" / "notes.txt").write_bytes(b"mine")
    result = command("--root", "log", "--json", "topics", "delete", "t", "--purge", "--yes")
    told = json.loads(result.out)
    assert told["left"] == ["t/notes.txt"] and told["files"] > 5 and told["bytes"] > 5000
