"""``offsetlog maintain --every``: it goes on through failures, and ends when it is told to."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

import offsetlog
from tests.cli.shell import PROGRAM, environment
from tests.cli.shell import offsetlog as command


def started(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PROGRAM, *words], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


@pytest.mark.parametrize(("sign", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_rounds_follow_each_other_until_a_signal(place: Path, sign: int, status: int) -> None:
    with offsetlog.open(str(place / "log")) as log:
        log.create_topic("orders")
        words = ("maintain", "orders", "--every", "1s", "--grace", "0")
        process = started(*words, "--json")
        try:
            assert process.stdout is not None
            rewritten = 0
            for _ in range(2):
                with log.producer(linger_ms=0) as producer:
                    for _ in range(20):
                        producer.send("orders", b"x").result()
                before = rewritten
                while rewritten < before + 8:
                    [report] = json.loads(process.stdout.readline())
                    assert report["topic"] == "orders"
                    rewritten += report["rewritten_files"]
            process.send_signal(sign)
            _, err = process.communicate(timeout=20)
        finally:
            process.kill()
        assert (process.returncode, err) == (status, "")
        assert not [f for r in log.verify("orders") for f in r.faults]


def test_a_round_that_fails_does_not_end_it(place: Path) -> None:
    """The root is moved away and comes back."""
    root, away = place / "log", place / "away"
    with offsetlog.open(str(root)) as log:
        log.create_topic("orders")
    process = started("maintain", "--every", "1s", "--json")
    try:
        assert process.stdout is not None and process.stderr is not None
        assert json.loads(process.stdout.readline())[0]["topic"] == "orders"
        root.rename(away)
        warning = process.stderr.readline()
        assert warning.startswith("offsetlog: warning: this round failed: ")
        away.rename(root)
        assert json.loads(process.stdout.readline())[0]["topic"] == "orders"
        process.terminate()
        process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 143


def test_a_mistake_ends_it_at_once(place: Path) -> None:
    result = command("maintain", "--every", "10m")
    assert result.status == 2 and "There is no log" in result.err
    result = command("maintain", "--every", "0s")
    assert result.status == 2 and "too short" in result.err


def test_nothing_is_printed_for_a_round_that_did_nothing(place: Path) -> None:
    with offsetlog.open(str(place / "log")) as log:
        log.create_topic("orders")
    command("maintain")
    process = started("maintain", "--every", "1s")
    time.sleep(3)
    process.terminate()
    assert process.communicate(timeout=20) == ("", "")
