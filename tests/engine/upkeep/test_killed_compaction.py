"""Maintainers and erasures that are killed for real: nothing of theirs is half done."""

from __future__ import annotations

import subprocess
import sys
import time
from random import Random

import pyarrow as pa

import offsetlog
from tests.engine.upkeep.test_compaction import COMPACT, newest, read, sound

PROGRAM = """
import sys
import offsetlog
with offsetlog.open(sys.argv[1]) as log:
    print("ready", flush=True)
    for n in range(1000):
        log.maintain("t", grace_ms=0)
        log.topic("t").erase(keys=[b"secret-%d" % (n % 3)])
"""
KILLS = 3


def test_killed_maintainers_and_erasures(tmp_path):
    rng = Random(7)
    with offsetlog.open(str(tmp_path)) as log:
        log.create_topic("t", partitions=2, config={**COMPACT, "compression.type": "none"})
        sent: dict[int, list] = {0: [], 1: []}
        for kill in range(KILLS):
            running = [
                subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, str(tmp_path)],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
                for _ in range(2)
            ]
            for process in running:
                assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            until = time.monotonic() + rng.uniform(0.05, 0.6)
            while time.monotonic() < until:
                partition = rng.randrange(2)
                keys = [b"k%d" % rng.randint(0, 200) for _ in range(rng.choice((3, 4000)))]
                keys += [b"secret-%d" % rng.randrange(3)]
                values = [b"%d" % rng.getrandbits(60) for _ in keys]
                table = {"key": keys, "value": values, "partition": [partition] * len(keys)}
                with log.producer() as producer:
                    future = producer.send_arrow("t", pa.table(table))
                base = future.metadata(0).offset
                sent[partition] += [
                    (base + n, *pair) for n, pair in enumerate(zip(keys, values, strict=True))
                ]
            for process in running:
                process.kill()
                process.wait()
                process.stdout.close()  # type: ignore[union-attr]
            if kill % 2:
                left = read(log)
                for p, records in sent.items():
                    keep = {r for r in newest(records) if not r[1].startswith(b"secret")}
                    assert keep <= set(left[p]) <= set(records), f"partition {p}"
        log.topic("t").erase(keys=[b"secret-%d" % n for n in range(3)])
        for _ in range(2):
            log.maintain("t", grace_ms=0)
        assert read(log) == {
            p: newest([r for r in records if not r[1].startswith(b"secret")])
            for p, records in sent.items()
        }
        sound(log)
    assert not any(b"secret-" in f.read_bytes() for f in tmp_path.rglob("*.parquet"))
