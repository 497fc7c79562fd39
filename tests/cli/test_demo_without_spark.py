"""``offsetlog demo`` without Spark: played to its end, it counts; and it would notice a fault."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import pytest

import offsetlog as library
from offsetlog import environment as machine
from offsetlog.demo import story
from offsetlog.demo.billing import RIGHT
from offsetlog.demo.orders import BATCH, FILES, PARTITIONS, TOPIC, encode, worth
from offsetlog.demo.program import DemoFailed
from offsetlog.demo.reckoning import Finding, findings, money, take_reading
from offsetlog.demo.stage import Stage
from tests.cli.shell import PROGRAM, environment, offsetlog
from tests.waiting import until


def processes_of(place: Path) -> list[str]:
    """Processes that still know of a demo's folder there."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"{place}/offsetlog-demo-" in line:
            lines.append(line)
    return lines


def test_the_whole_story(place, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(place))
    result = offsetlog("demo", "--no-spark", "--seconds", "3", "--producers", "2", "--json")
    assert result.status == 0, result.err
    findings = json.loads(result.out)
    assert len(findings) == 9 and all(finding["kept"] for finding in findings)
    for finding in findings[:2]:
        numbers = re.findall(r"\d+", finding["detail"].replace(",", ""))
        sent, stored, billed, missing, twice = map(int, numbers)
        assert sent == stored == billed > 200 and missing == twice == 0
    for words in (
        "SIGKILL",
        "shop-2 KILLED, worker-1 KILLED",
        "worker-2 took over",
        "groups reset",
    ):
        assert words in result.err
    asked = result.err.partition("group by partition")[2].split("\n\n")[0].splitlines()[2:]
    counts = [int(line.split()[1]) for line in asked if line.split()[:1] != ["partition"]]
    assert len(counts) == PARTITIONS and sum(counts) == sent
    lines = result.err.replace(str(place), "/tmp").splitlines()
    assert max(map(len, lines)) <= 110
    assert list(place.glob("offsetlog-demo-*")) == [] and processes_of(place) == []


def test_at_a_terminal_it_ends_with_the_page_of_its_log(place, monkeypatch):
    """It answers until Enter, also where another page has the usual port."""
    asked = []

    def play(folder, **_):
        with library.open(str(folder / "log")) as log:
            log.create_topic(TOPIC)
        return [Finding("all is kept", True, "")]

    def enter(text):
        assert "Enter" in text
        [url] = re.findall(r"http://127\.0\.0\.1:\d+/", printed[-1])
        with urlopen(f"{url}api/topics", timeout=10) as answer:
            asked.append([topic["name"] for topic in json.load(answer)])

    printed = []
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    monkeypatch.setattr("tempfile.tempdir", str(place))
    monkeypatch.setattr("offsetlog.demo.story.play", play)
    monkeypatch.setattr("offsetlog.cli.demo.at_a_terminal", lambda: True)
    monkeypatch.setattr("offsetlog.cli.demo.wait_for_enter", enter)
    monkeypatch.setattr("offsetlog.cli.demo.print_line", lambda text="", **_: printed.append(text))
    with socket.socket() as taken, suppress(OSError):
        taken.bind(("127.0.0.1", 8900))
        taken.listen()
        assert offsetlog("demo", "--no-spark").status == 0
    assert asked == [[TOPIC]] and list(place.glob("offsetlog-demo-*")) == []
    asked.clear()
    assert offsetlog("demo", "--no-spark", "--json").status == 0 and asked == []
    monkeypatch.setitem(sys.modules, "offsetlog.page.server", None)  # Without the extra.
    assert offsetlog("demo", "--no-spark").status == 0 and asked == []


def test_ctrl_c_ends_it_quietly_and_leaves_nothing(place):
    with subprocess.Popen(
        [*PROGRAM, "demo", "--no-spark", "--seconds", "3"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment(TMPDIR=str(place)), start_new_session=True,
    ) as process:  # fmt: skip
        while b"workers" not in process.stdout.readline():
            assert process.poll() is None
        assert len(processes_of(place)) >= 3
        os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=30)
    assert (process.returncode, error) == (130, b"")
    assert list(place.glob("offsetlog-demo-*")) == [] and processes_of(place) == []


def test_its_processes_end_with_it(place):
    """Who kills the demo itself leaves a folder, but nobody at work in it."""
    with subprocess.Popen(
        [*PROGRAM, "demo", "--no-spark", "--seconds", "3"], stdout=subprocess.PIPE,
        env=environment(TMPDIR=str(place)), start_new_session=True,
    ) as process:  # fmt: skip
        while b"workers" not in process.stdout.readline():
            assert process.poll() is None
        process.kill()
        process.communicate()
    until(lambda: processes_of(place) == [], 30)


@pytest.mark.parametrize(
    ("words", "why_not", "with_spark"),
    [
        ((), "", True),
        ((), "there is no Java", False),
        (("--spark",), "", True),
        (("--spark",), "there is no Java", None),
        (("--no-spark",), "", False),
        (("--no-spark",), "there is no Java", False),
    ],
)
def test_which_cast_plays(words, why_not, with_spark, place, monkeypatch):
    calls = []
    monkeypatch.setattr("tempfile.tempdir", str(place))
    monkeypatch.setattr(machine, "spark_lacks", lambda: why_not)
    monkeypatch.setattr(story, "play", lambda folder, **about: calls.append(about) or [])
    result = offsetlog("demo", *words)
    if with_spark is None:
        assert (result.status, calls) == (1, [])
        assert result.err == f"offsetlog: the demo can't run with Spark here: {why_not}.\n"
        return
    assert (result.status, result.err) == (0, "")
    assert [about["with_spark"] for about in calls] == [with_spark]
    explained = f"This is the story without Spark, since {why_not}." in result.text
    assert explained is (bool(why_not) and not words)
    assert list(place.glob("offsetlog-demo-*")) == []


@pytest.mark.parametrize("keep", [True, False])
def test_a_broken_promise_is_a_failure_and_keeps_the_log(keep, place, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(place))
    broken = [Finding("All is well", True, ""), Finding("Nothing is lost", False, "1 missing")]
    monkeypatch.setattr(story, "play", lambda folder, **about: broken)
    result = offsetlog("demo", "--no-spark", *(["--keep"] if keep else []))
    [folder] = place.glob("offsetlog-demo-*")
    assert result.status == 1 and "NO" in result.text
    assert (f"  offsetlog --root {folder}/log verify\n" in result.text) is keep
    assert result.err == (
        f"offsetlog: a promise was broken: Nothing is lost. Report it, with the log in {folder}.\n"
    )


def test_a_story_that_ends_early_shows_the_log_of_who_is_at_fault(place, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(place))

    def play(folder, **about):
        raise DemoFailed("shop-1 ended with status 1.", ["Traceback", "no disk"])

    monkeypatch.setattr(story, "play", play)
    result = offsetlog("demo", "--no-spark")
    [folder] = place.glob("offsetlog-demo-*")
    assert result.status == 1
    assert result.err == (
        "  Traceback\n  no disk\n"
        f"offsetlog: shop-1 ended with status 1. Everything is in {folder}.\n"
    )


def test_a_batch_that_is_sent_again_after_a_kill_counts_once(place):
    stage = Stage(place, 1, with_spark=False)
    program = stage.shops[0].program
    try:
        answers = []
        for _ in range(2):
            program.start(answers=True)
            program.request("0 1700000000000")
            answers.append(program.answer())
            program.kill()
        assert answers[0] == answers[1] and len(answers[0].split()) == BATCH
        assert sum(stage.log.topic(TOPIC).end_offsets().values()) == BATCH
    finally:
        stage.stop()


@pytest.fixture
def stage(place):
    """After a story without processes, in which every promise was kept."""
    stage = Stage(place, 1, with_spark=False)
    [shop] = stage.shops
    with stage.log.producer() as producer:
        futures = []
        for number in range(2 * BATCH):
            key, value = encode("shop-1", number)
            futures.append(producer.send(TOPIC, value, key))
    places = [(future.result().partition, future.result().offset) for future in futures]
    shop.places = {at: number for number, at in enumerate(places)}
    shop.sent, shop.killed_after, shop.program.state = len(places), BATCH, "ended"
    with stage.log.consumer("billing", TOPIC, auto_offset_reset="earliest") as consumer:
        records = consumer.poll(1.0)
    assert {record.partition for record in records} == set(range(PARTITIONS))
    stage.tail.records = {(r.partition, r.offset): r.value for r in records}
    stage.readers.seconds = 1.9
    stage.records = [(r.partition, r.offset, r.value) for r in records]
    stage.billing.bill(stage.records)
    stage.billing.bill(stage.records)  # the same again replaces what was billed before
    stage.billing.rule.write_text(RIGHT)
    stage.billing.bill(stage.records)
    yield stage
    stage.stop()


def broken(stage):
    first, replay = take_reading(stage, "first reading", 1), take_reading(stage, "replay", 2)
    return [one.promise for one in findings(stage, first, replay) if not one.kept]


def test_kept_promises(stage):
    assert broken(stage) == []
    assert take_reading(stage, "replay", 2).cents == worth("shop-1", 2 * BATCH)


def test_an_order_that_is_billed_twice(stage):
    *_, last = (record for record in stage.records if record[0] == 0)
    stage.billing.bill([last])
    assert take_reading(stage, "replay", 2).twice == 1
    assert broken(stage) == [
        "The replay lost and duplicated nothing",
        "The first sum was wrong, the replay's is right",
    ]


def test_an_order_that_is_not_billed(stage):
    partition = [record for record in stage.records if record[0] == 0]
    stage.billing.bill(partition[:-1])
    assert take_reading(stage, "replay", 2).missing == 1
    assert "The replay lost and duplicated nothing" in broken(stage)


def test_an_order_at_the_place_of_another(stage):
    partition = [record for record in stage.records if record[0] == 0]
    stage.billing.bill([*partition[:-1], (*partition[-1][:2], partition[0][2])])
    assert "The replay lost and duplicated nothing" in broken(stage)


def test_an_order_that_is_lost(stage):
    [shop] = stage.shops
    shop.sent += 1
    shop.places[0, 10_000] = shop.sent - 1
    assert broken(stage)[-1] == "Each acknowledged order is at its offset, once"


def test_an_order_that_is_stored_twice(stage):
    with stage.log.producer() as producer:
        producer.send(TOPIC, stage.records[0][2]).result()
    assert broken(stage) == [
        "The first reading lost and duplicated nothing",
        "The replay lost and duplicated nothing",
        "Each acknowledged order is at its offset, once",
        "The live tail saw all of them, in order",
        "The group has read everything",
    ]


def test_a_tail_that_missed_a_record(stage):
    stage.tail.records.popitem()
    assert broken(stage) == ["The live tail saw all of them, in order"]


def test_a_shop_that_failed(stage):
    stage.shops[0].program.state = "failed (1)"
    assert broken(stage) == ["A shop was killed, and all of them finished"]


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_a_group_that_did_not_go_on(seconds, stage):
    stage.readers.seconds = seconds
    assert broken(stage) == ["The group recovered from the kill"]


def test_a_log_that_is_damaged(stage):
    entry = next(Path(stage.root, TOPIC, "_log").rglob("*0.parquet"))
    entry.with_name("other.parquet").write_bytes(entry.read_bytes())
    assert broken(stage) == ["verify finds no fault"]
    entry.unlink()
    with pytest.raises(library.OffsetLogError):
        broken(stage)


def test_orders_are_worth_what_they_are_worth():
    assert worth(FILES, 2) == 100 * 1 + 137 * 2
    assert money(123456) == "1,234.56" and money(5) == "0.05"
