"""Real processes: eight that fight for one group, and one that takes over from the killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import offsetlog
from offsetlog.storage import open_store
from offsetlog.storage.offsets.open import open_offsets
from tests.waiting import until

CHECKOUT = Path(__file__).resolve().parents[3]
FIGHT_SECONDS = float(os.environ.get("OFFSETLOG_FIGHT_SECONDS", "15"))


def start(root: Path, name: str, **options) -> subprocess.Popen:
    options = {"seed": 1, "seconds": 120, "settings": {}, **options}
    program = str(Path(__file__).with_name("group_worker.py"))
    with (root.parent / f"{name}.err").open("w") as errors:
        return subprocess.Popen(
            [
                sys.executable,
                "-P",
                program,
                str(root),
                str(root.parent / name),
                json.dumps(options),
            ],
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
            stderr=errors,
        )


def journal(root: Path, name: str) -> list[dict]:
    """What a worker wrote down; a killed one may have left half a line."""
    lines = (root.parent / name).read_text().splitlines()
    out = []
    for line in lines:
        try:
            out.append(json.loads(line))
        except ValueError:
            assert line == lines[-1]
    return out


def test_eight_processes_fight_for_one_group(tmp_path):
    """Killed, stopped, leaving, and racing for every version: no position is lost or goes back,
    and everything below a position was given to somebody."""
    root = tmp_path / "log"
    partitions, chance = 6, random.Random(7)
    log = offsetlog.open(str(root))
    log.create_topic("orders", partitions)
    settings = {"session_timeout_ms": 1500}
    names = [f"w{i}" for i in range(8)]
    workers = {
        name: start(root, name, seed=i, leaves=0.02, settings=settings)
        for i, name in enumerate(names)
    }
    stopped = killed = 0
    until(lambda: len([n for n in names if (tmp_path / n).exists()]) == 8, 60)
    until(lambda: len(log.offsets_table.look().group("fight").members) >= 6, 60)
    deadline = time.monotonic() + FIGHT_SECONDS
    with log.producer() as producer:
        while time.monotonic() < deadline:
            for n in range(60):
                producer.send("orders", b"x" * 20, partition=n % partitions)
            producer.flush()
            time.sleep(0.3)
            dice = chance.random()
            if dice < 0.12:
                name = chance.choice(sorted(workers))
                workers[name].send_signal(signal.SIGKILL)
                workers[name].wait()
                names.append(f"w{len(names)}")
                workers[names[-1]] = start(root, names[-1], seed=len(names), settings=settings)
                del workers[name]
                killed += 1
            elif dice < 0.25:
                victim = workers[chance.choice(sorted(workers))]
                victim.send_signal(signal.SIGSTOP)
                time.sleep(chance.choice([0.2, 2.2]))
                victim.send_signal(signal.SIGCONT)
                stopped += 1
    (tmp_path / "stop").touch()
    for worker in workers.values():
        assert worker.wait(timeout=60) == 0
    assert killed and stopped

    given = {
        (partition, offset)
        for name in names
        if (tmp_path / name).exists()
        for line in journal(root, name)
        for partition, offset in line.get("got", ())
    }
    positions: dict[int, int] = {}
    news = open_offsets(open_store(str(root))).read(-1)
    facts = sorted(news.facts, key=lambda fact: (fact.version, fact.place))
    commits = 0
    for fact in facts:
        if fact.offset is not None:
            assert fact.kind in ("commit", "release")
            assert fact.offset >= positions.get(fact.partition, 0), fact
            positions[fact.partition] = fact.offset
            commits += 1
    print(
        f"{commits} positions in {facts[-1].version} versions, {killed} killed, {stopped} stopped"
    )
    assert commits > 20
    state = log.group("fight").committed()
    assert {tp.partition: said.offset for tp, said in state.items()} == positions
    missed = [
        (partition, offset)
        for partition, position in positions.items()
        for offset in range(position)
        if (partition, offset) not in given
    ]
    assert missed == []
    with log.consumer("fight", ["orders"], session_timeout_ms=1500) as last:
        rest, ends = [], log.topic("orders").end_offsets()
        while sum(positions.get(p, 0) for p in ends) + len(rest) < sum(ends.values()):
            rest += [(r.partition, r.offset) for r in last.poll(1.0)]
    assert sorted(rest) == [(p, o) for p in ends for o in range(positions.get(p, 0), ends[p])]
    log.close()


def test_takeover_after_a_sigkill_within_the_session_timeout_and_a_second(tmp_path):
    root = tmp_path / "log"
    session = 2.0
    log = offsetlog.open(str(root))
    log.create_topic("orders", 4)
    settings = {"session_timeout_ms": int(session * 1000)}
    first = start(root, "first", settings=settings, commits=1.0)
    second = start(root, "second", settings=settings, commits=1.0)
    try:
        until(lambda: log.group("fight").state() == "Stable"
                 and len(log.group("fight").members()) == 2)  # fmt: skip
        with log.producer() as producer:
            for n in range(400):
                producer.send("orders", b"x", partition=n % 4)
        until(lambda: sum(log.group("fight").lag().values()) == 0
                 and len(log.group("fight").lag()) == 4)  # fmt: skip
        first.send_signal(signal.SIGKILL)
        at = time.time()
        first.wait()
        with log.producer() as producer:
            for n in range(400):
                producer.send("orders", b"y", partition=n % 4)
        until(lambda: sum(log.group("fight").lag().values()) == 0)
        taken = [
            line["at"] for line in journal(root, "second") if "has" in line and line["at"] > at
        ]
        assert len(taken) == 1
        assert taken[0] - at <= session + 1.0
        print(f"taken over {taken[0] - at:.2f} s after the kill, session timeout {session} s")
        [left] = log.group("fight").members()
        assert len(left.partitions) == 4
        given = [tuple(pair) for name in ("first", "second") for line in journal(root, name)
                 for pair in line.get("got", ())]  # fmt: skip
        assert sorted(given) == sorted((p, o) for p in range(4) for o in range(200)), (
            "all of it was committed before the kill, so nothing is given twice"
        )
    finally:
        for worker in (first, second):
            worker.kill()
            worker.wait()
        log.close()
