"""The programs that ``test_kill`` kills: run as ``python kill_worker.py ROLE ROOT NAME``.

What is acknowledged goes to stdout, one line each, unbuffered: the parent writes it down."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import offsetlog


def produce(root: str, name: str) -> None:
    """Sends numbered records; every third batch is large enough for a segment."""
    with offsetlog.open(root) as log:
        for number in range(1_000_000):
            time.sleep(0.01)
            with log.producer() as producer:
                pad = b"x" * (60_000 if number % 3 == 2 else 10)
                values = [b"%s/%d/%d/" % (name.encode(), number, i) for i in range(6)]
                sent = [producer.send("t", v + pad, partition=i % 3) for i, v in enumerate(values)]
                told = [future.result() for future in sent]
            say(
                "".join(
                    f"{v.decode()} {m.partition} {m.offset}\n"
                    for v, m in zip(values, told, strict=True)
                )
            )


def keyed(root: str, name: str) -> None:
    """Sends batches under its own sequence, from where its note says it is."""
    note = f"{root}.{name}"
    with offsetlog.open(root) as log:
        first = int(Path(note).read_text()) if os.path.exists(note) else 1
        for number in range(first, 1_000_000):
            time.sleep(0.01)
            producer = log.producer(app_id=name, sequence=number)
            values = [b"%s/%d/%d/" % (name.encode(), number, i) for i in range(4)]
            sent = [
                producer.send("t", v, partition=i % 3, timestamp=number)
                for i, v in enumerate(values)
            ]
            producer.flush()
            told = [future.result() for future in sent]
            say(
                "".join(
                    f"{v.decode()} {m.partition} {m.offset}\n"
                    for v, m in zip(values, told, strict=True)
                )
            )
            with open(note + ".new", "w") as out:
                out.write(str(number + 1))
            os.replace(note + ".new", note)


def maintain(root: str, name: str) -> None:
    with offsetlog.open(root) as log:
        while True:
            log.maintain("t", grace_ms=0)
            say("round\n")


def say(text: str) -> None:
    os.write(1, text.encode())


if __name__ == "__main__":
    {"produce": produce, "keyed": keyed, "maintain": maintain}[sys.argv[1]](*sys.argv[2:])
