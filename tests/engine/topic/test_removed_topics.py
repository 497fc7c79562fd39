"""A topic's folder that is purged or removed under a program that writes: nothing is acknowledged
that nobody reads, and nothing of the old topic is in one that is made in its place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import offsetlog
from offsetlog.client.log import Log
from offsetlog.core.topic.entry import Expire
from offsetlog.engine.env import REAL
from offsetlog.engine.topic.chain import PROVEN_SECONDS
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import InvalidRequestError, OffsetLogWarning, UnknownTopicError
from offsetlog.storage import open_store
from tests.engine.topic.test_backups import Remote

SENT = 6


def values(url: str, topic: str = "t") -> list[bytes]:
    with offsetlog.open(url) as log:
        consumer = log.consumer(auto_offset_reset="earliest")
        consumer.assign([(topic, 0)])
        found: list[bytes] = []
        while records := consumer.poll(0):
            found += [record.value for record in records]
        return found


@pytest.fixture(params=["local", "memory"])
def url(request, tmp_path):
    return str(tmp_path / "log") if request.param == "local" else f"memory://{tmp_path.name}"


def remove(url: str, how: str) -> None:
    """As another program does it."""
    with offsetlog.open(url) as other:
        if how == "purge":
            other.delete_topic("t", purge=True)
        else:
            other.store.delete_tree("t")


def create_and_fill(url: str, count: int) -> None:
    with offsetlog.open(url) as other:
        other.create_topic("t")
        with other.producer() as producer:
            for number in range(count):
                producer.send("t", b"new %d" % number).result()


@pytest.mark.parametrize("how", ["purge", "rm"])
@pytest.mark.parametrize("opened", ["from its beginning", "from a snapshot"])
@pytest.mark.parametrize("again", [None, 0, SENT - 1, SENT, SENT + 1, 20])
@pytest.mark.parametrize("size", [10, 300_000], ids=["inline", "segment"])
def test_what_is_sent_after_the_folder_went_is_refused(url, how, opened, again, size):
    with offsetlog.open(url) as log:
        log.create_topic("t")
        with log.producer() as producer:
            for number in range(SENT):
                producer.send("t", b"old %d" % number).result()
        if opened == "from a snapshot":
            log.open_topic("t").stored.publish()
    with offsetlog.open(url) as log, log.producer() as producer:
        producer.send("t", b"the first").result()
        remove(url, how)
        if again is not None:
            create_and_fill(url, again)
        for _ in range(2):
            with pytest.raises(UnknownTopicError, match="was removed, or another one took") as no:
                producer.send("t", bytes(size)).result()
            assert not no.value.may_have_landed
    if again is None:
        create_and_fill(url, 0)
    create = again or 0
    with offsetlog.open(url) as log, log.producer() as producer:
        for number in range(20):
            producer.send("t", b"then %d" % number).result()
        assert log.verify("t")[0].sound
    wanted = [b"new %d" % n for n in range(create)] + [b"then %d" % n for n in range(20)]
    assert values(url) == wanted


@pytest.mark.parametrize("when", ["before the link", "after the link"])
def test_a_folder_that_goes_in_the_middle_of_a_put(tmp_path, when, monkeypatch):
    """Between the look and the link, and between the link and the acknowledgement."""
    root = tmp_path / "log"
    with offsetlog.open(str(root)) as log:
        log.create_topic("t")
        with log.producer() as producer:
            producer.send("t", b"x").result()
            from offsetlog.storage.local.files import Temporary

            link = Temporary.link

            def linked(self, folder, last):
                monkeypatch.setattr(Temporary, "link", link)
                if when == "after the link":
                    link(self, folder, last)
                shutil.rmtree(root / "t")
                create_and_fill(str(root), 1)
                if when == "before the link":
                    link(self, folder, last)

            monkeypatch.setattr(Temporary, "link", linked)
            with pytest.raises(UnknownTopicError, match="was removed, or another one took"):
                producer.send("t", b"lost").result()
    assert values(str(root)) == [b"new 0"]
    create = sorted(path.name for path in (root / "t" / "_log").rglob("*.parquet"))
    assert len(create) == 2, "no entry of the old topic lies in wait in the new one's chain"


def test_no_topic_is_made_upon_the_rest_of_one(tmp_path):
    """What a program of an older version left, that did not look."""
    root = tmp_path / "log"
    with offsetlog.open(str(root)) as log:
        log.create_topic("t")
        with log.producer() as producer:
            for _ in range(SENT):
                producer.send("t", b"zombie").result()
    for path in sorted((root / "t" / "_log").rglob("*.parquet"))[:-1]:
        path.unlink()
    with offsetlog.open(str(root)) as log:
        with pytest.raises(InvalidRequestError, match="offsetlog topics delete t --purge") as no:
            log.create_topic("t")
        assert f"{SENT:020d}.parquet" in str(no.value)
        log.delete_topic("t", purge=True)
        log.create_topic("t")
        with log.producer() as producer:
            for number in range(2 * SENT):
                producer.send("t", b"%d" % number).result()
    assert values(str(root)) == [b"%d" % number for number in range(2 * SENT)]


def test_what_upkeep_does_to_the_known_entry_is_no_removal(url):
    """Its rows go, which makes another file of it; its write id stays."""
    with offsetlog.open(url) as log:
        log.create_topic("t")
        with log.producer() as producer:
            producer.send("t", b"0").result()
            with offsetlog.open(url) as sender, sender.producer() as other:
                other.send("t", b"1").result()
                log.open_topic("t").stored.publish()
                with offsetlog.open(url) as late, late.producer() as third:
                    third.send("t", b"2").result()
                    for number in range(8):
                        producer.send("t", b"%d" % (number + 3)).result()
                    log.maintain("t", grace_ms=0)
                    other.send("t", b"11").result()
                    third.send("t", b"12").result()
    assert sorted(map(int, values(url))) == list(range(13))


def test_upkeep_and_listing_begin_anew_with_a_folder_that_another_topic_took(url):
    with offsetlog.open(url) as log:
        log.create_topic("t", partitions=4)
        assert log.topics().infos[0].entries == 1
        remove(url, "rm")
        create_and_fill(url, 3)
        [told] = log.topics().infos
        assert (len(told.partitions), told.records) == (1, 3)
        [done] = [one for one in log.maintain(grace_ms=0) if one.topic == "t"]
        assert done.entries >= 4
    assert values(url) == [b"new 0", b"new 1", b"new 2"]


# --- readers -------------------------------------------------------------------------------

TAKEN = "Another topic took the folder"


@pytest.mark.parametrize("group", [None, "g"])
@pytest.mark.parametrize("again", [0, 3, SENT, 20])
def test_a_consumer_is_told_that_another_topic_took_the_folder(url, group, again):
    """Its positions are of the topic that was: nothing is given or committed at them."""
    with offsetlog.open(url) as log:
        log.create_topic("t")
        with log.producer() as producer:
            for number in range(SENT):
                producer.send("t", b"old %d" % number)
        consumer = log.consumer(group, ["t"], auto_offset_reset="earliest")
        given = 0
        while given < SENT:
            given += len(consumer.poll(1))
        known = log.topic("t")
        remove(url, "purge")
        create_and_fill(url, again)
        for _ in range(2):
            with pytest.raises(UnknownTopicError, match=TAKEN):
                consumer.poll(0.05)
        with pytest.raises(UnknownTopicError, match=TAKEN):
            known.end_offsets()
        if group is not None:
            with pytest.raises(UnknownTopicError, match=TAKEN):
                consumer.commit()
            with pytest.warns(OffsetLogWarning, match=TAKEN):
                consumer.close()
            assert log.positions().num_rows == 0
            assert not log.group(group).describe().members
        # Who asks anew gets the topic that is there.
        assert log.topic("t").end_offsets() == {0: again}
        late = log.consumer("late", ["t"], auto_offset_reset="earliest")
        found: list[bytes] = []
        while len(found) < again:
            found += [record.value for record in late.poll(1)]
        assert found == [b"new %d" % n for n in range(again)]
        with log.producer() as producer:
            assert producer.send("t", b"more").result().offset == again


def test_what_waits_for_a_topic_that_went_is_told_when_the_log_is_closed(url):
    log = offsetlog.open(url)
    log.create_topic("t")
    log.producer().send("t", b"x").result()
    log.producer(linger_ms=60_000).send("t", b"waits")
    keyed = log.producer(app_id="a", sequence=1)
    keyed.send("t", b"gathered")
    remove(url, "purge")
    create_and_fill(url, 1)
    assert log.topic("t").end_offsets() == {0: 1}
    with pytest.raises(UnknownTopicError, match="was removed, or another one took"):
        log.close()


# --- where a look is a request -------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def remote_log(root: Path, clock: Clock) -> tuple[Remote, Log]:
    store = Remote(open_store(str(root)))
    store.has_stamps, store.stays = False, True
    return store, Log(store, REAL._replace(monotonic=clock, sleep=lambda seconds: None))


def appended(handle: OpenTopic, count: int) -> None:
    for _ in range(count):
        handle.decide(Expire(0))


def test_on_a_server_it_is_looked_at_now_and_then(tmp_path):
    root, clock = tmp_path / "log", Clock()
    with offsetlog.open(str(root)) as log:
        log.create_topic("t")
    store, log = remote_log(root, clock)
    handle = log.open_topic("t")
    handle.state()
    store.asked.clear()
    appended(handle, 50)
    assert store.asked == [], "no append costs a request more"
    clock.now += PROVEN_SECONDS + 1
    appended(handle, 50)
    assert [name[-28:] for name in store.asked] == [f"{0:020d}.parquet"], "but one in ten minutes"
    shutil.rmtree(root / "t")
    clock.now += PROVEN_SECONDS + 1
    for _ in range(2):
        with pytest.raises(UnknownTopicError, match="was removed"):
            appended(handle, 1)
    assert not (root / "t").exists()


def test_on_a_server_a_reader_looks_now_and_then(tmp_path):
    root, clock = tmp_path / "log", Clock()
    with offsetlog.open(str(root)) as log:
        log.create_topic("t")
        with log.producer() as producer:
            for number in range(SENT):
                producer.send("t", b"old %d" % number).result()
    store, log = remote_log(root, clock)
    handle = log.open_topic("t")
    handle.state()
    store.asked.clear()
    for _ in range(5):
        handle.state()
    assert len(store.asked) == 5, "no look costs a request more"
    remove(str(root), "purge")
    create_and_fill(str(root), SENT + 3)
    clock.now += PROVEN_SECONDS + 1
    for _ in range(2):
        with pytest.raises(UnknownTopicError, match=TAKEN):
            handle.state()
    assert log.topic("t").end_offsets() == {0: SENT + 3}


def test_on_a_server_what_is_read_in_vain_makes_a_reader_look(tmp_path):
    root, clock = tmp_path / "log", Clock()
    with offsetlog.open(str(root)) as log:
        log.create_topic("t")
        with log.producer() as producer:
            producer.send("t", bytes(300_000)).result()
    _, log = remote_log(root, clock)
    consumer = log.consumer(auto_offset_reset="earliest")
    consumer.assign([("t", 0)])
    remove(str(root), "purge")
    create_and_fill(str(root), 1)
    with pytest.raises(UnknownTopicError, match=TAKEN):
        consumer.poll(0)


def test_on_a_server_a_writer_finds_it_when_it_would_store_a_snapshot(tmp_path):
    root, clock = tmp_path / "log", Clock()
    with offsetlog.open(str(root)) as log:
        log.create_topic("t")
    _, log = remote_log(root, clock)
    handle = log.open_topic("t")
    handle.state()
    appended(handle, 40)
    clock.now += 2
    assert handle.stored.publish_if_due()
    shutil.rmtree(root / "t")
    appended(handle, 40)
    clock.now += 2
    assert not handle.stored.publish_if_due()
    with pytest.raises(UnknownTopicError, match="was removed"):
        appended(handle, 1)
    assert not (root / "t" / "_snapshot").exists()
    with offsetlog.open(str(root)) as log, pytest.raises(InvalidRequestError, match="no entry 0"):
        log.create_topic("t")


def test_a_folder_without_a_topic_is_not_proposed_in_its_own_place(tmp_path):
    with offsetlog.open(str(tmp_path / "log")) as log:
        log.create_topic("other")
        (tmp_path / "log" / "b").mkdir()
        with pytest.raises(UnknownTopicError) as no:
            log.topic("b")
        assert "Did you mean" not in str(no.value)


def test_a_topic_whose_first_entries_are_gone_is_warned_of(tmp_path):
    root = tmp_path / "log"
    with offsetlog.open(str(root)) as log:
        for name in ("t", "u"):
            log.create_topic(name)
        with log.producer() as producer:
            for _ in range(SENT):
                producer.send("t", b"x").result()
    for path in sorted((root / "t" / "_log").rglob("*.parquet"))[:2]:
        path.unlink()
    warned = pytest.warns(OffsetLogWarning, match="topic in .*/t can't be read.*no entry 0")
    with offsetlog.open(str(root)) as log, warned:
        assert log.topics() == ["u"]
