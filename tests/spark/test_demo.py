"""``offsetlog demo`` with Spark: told to its end, it counts; without Spark it says why."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from offsetlog.cli import demo_spark, doctor
from offsetlog.demo.ledger import Ledger
from offsetlog.demo.orders import FILES, PARTITIONS, SHOP, WRONG, order, worth
from offsetlog.demo.story import Reading, Story
from offsetlog.demo.tell import findings, money
from tests.pages import environment

PROGRAM = [sys.executable, "-m", "offsetlog"]
NOISE = ("WARN", "ERROR", "Exception", "Traceback", "at org.apache", "sc.setLogLevel")


def _environment(place: Path, **more: str) -> dict[str, str]:
    return environment(TMPDIR=str(place), COLUMNS="80", **more)


def _left(place: Path) -> list[str]:
    """Processes that still know of the demo's folder."""
    found = []
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = cmdline.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"{place}/offsetlog-demo-" in text:
            found.append(text)
    return found


def test_the_whole_story(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, "demo", "--spark", "--seconds", "3", "--json"],
        capture_output=True, text=True, env=_environment(tmp_path), timeout=1500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(told) == 5 and all(finding["kept"] for finding in told)
    details = [finding["detail"].replace(",", "") for finding in told]
    for detail in details[:2]:
        sent, stored, billed, missing, twice = (int(n) for n in re.findall(r"\d+", detail))
        assert sent == stored == billed > 1000 and missing == twice == 0
    assert re.search(r"Spark KILLED", done.stderr) and "replay" in done.stderr
    assert not [line for line in done.stderr.splitlines() if any(n in line for n in NOISE)]
    assert max(len(line) for line in done.stderr.splitlines()) <= 110
    assert list(tmp_path.glob("offsetlog-demo-*")) == [] and _left(tmp_path) == []


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*PROGRAM, "demo", "--spark"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=_environment(tmp_path), start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        while b"Spark starting" not in process.stdout.readline():
            assert process.poll() is None
        time.sleep(2)  # until there is something to end
        os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (130, b"")
    assert list(tmp_path.glob("offsetlog-demo-*")) == [] and _left(tmp_path) == []


def test_spark_that_does_not_start_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n"
        '[ "$1" = -version ] || { echo "no room for a heap" >&2; exit 1; }\n'
    )
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    done = subprocess.run(
        [*PROGRAM, "demo"], capture_output=True, text=True, timeout=300, check=False,
        env=_environment(tmp_path, JAVA_HOME=str(java.parent.parent)),
    )  # fmt: skip
    assert done.returncode == 1
    assert "no room for a heap" in done.stderr
    *_, last = done.stderr.splitlines()
    assert last.startswith("offsetlog: The Spark program ended with status 1.")
    [kept] = tmp_path.glob("offsetlog-demo-*")
    assert str(kept) in last and (kept / "driver.log").exists() and _left(tmp_path) == []


@pytest.mark.parametrize(
    ("version", "java", "lacks"),
    [
        ("4.2.0", "17.0.15", ""),
        ("4.10.1", "21", ""),
        ("4.1.1", "17.0.15", "PySpark is 4.1.1"),
        ("3.5.0", "17.0.15", "PySpark is 3.5.0"),
        ("4.2.0", "11.0.2", "Java is 11.0.2"),
        ("4.2.0", "1.8.0_292", "Java is 1.8"),
        ("4.2.0", doctor.MISSING, "there is no Java"),
        ("4.2.0", "/opt/jdk-21/bin/java does not run", "/opt/jdk-21/bin/java does not run"),
    ],
)
def test_what_is_lacking(
    monkeypatch: pytest.MonkeyPatch, version: str, java: str, lacks: str
) -> None:
    monkeypatch.setattr(demo_spark.metadata, "version", lambda name: version)
    monkeypatch.setattr(demo_spark, "java", lambda: java)
    told = demo_spark.spark_lacks()
    assert told.startswith(lacks) if lacks else told == ""
    monkeypatch.setattr(demo_spark.importlib.util, "find_spec", lambda name: None)
    assert demo_spark.spark_lacks().startswith("PySpark is not installed")


def _bill(ledger: Ledger, batch: int, stored: list[tuple[int, int, str, int]]) -> None:
    lines = []
    for partition, offset, source, number in stored:
        said = order(source, number)
        lines.append((partition, offset, source, number, said["price"] * said["pieces"]))
    ledger.write(batch, lines)


def test_the_count_would_notice(tmp_path: Path) -> None:
    """Each finding fails when its promise is broken."""
    story = Story(str(tmp_path))
    try:
        story.shop.send(range(100))
        story.shop.sent = 100
        with story.log.consumer(topics="orders", auto_offset_reset="earliest") as consumer:
            records = consumer.poll(1.0, 1000)
        whole = [(r.partition, r.offset, SHOP, json.loads(r.value or b"")["n"]) for r in records]
        assert len(whole) == 100 and len({r.partition for r in records}) == PARTITIONS
        assert (story.folder / "pricing.py").read_text() == WRONG

        def kept(first: Reading) -> list[bool]:
            return [finding.kept for finding in findings(story, first, first)][:3:2]

        _bill(story.ledger, 0, whole)
        right = story.first_reading()
        assert right.right == worth(SHOP, 100) == right.billed.cents
        assert kept(right) == [True, False]  # there was no bug
        _bill(story.ledger, 0, whole)
        assert story.first_reading() == right  # the same batch again takes its own place
        _bill(story.ledger, 1, whole[:1])
        assert story.first_reading().billed.twice == 1
        assert kept(story.first_reading())[0] is False
        _bill(story.ledger, 1, [])
        _bill(story.ledger, 0, whole[1:])
        assert story.first_reading().missing == 1 and kept(story.first_reading())[0] is False
        _bill(story.ledger, 0, [*whole[1:], (*whole[1][:2], *whole[0][2:])])
        assert kept(story.first_reading())[0] is False  # an order at another's place
    finally:
        story.stop()


def test_orders_are_worth_what_they_are_worth() -> None:
    assert worth(FILES, 2) == 100 * 1 + 137 * 2
    assert money(123456) == "1,234.56" and money(5) == "0.05"
