"""A producer process of the demo: ``python -m offsetlog.cli.demo_producer``.

Invariants:

1. A batch has a number; its records follow from the number alone, so a batch that is sent again
   after a crash is the same batch.
2. A line is printed only for a batch that was acknowledged: its number, and the place of each
   of its records.
"""

from __future__ import annotations

import sys
import time

import offsetlog

BATCH = 20
CUSTOMERS = 40


def values(name: str, sequence: int) -> list[tuple[bytes, bytes]]:
    """(key, value) of the records of a batch."""
    first = sequence * BATCH
    return [
        (f"customer-{n % CUSTOMERS}".encode(), f"{name} order {n}".encode())
        for n in range(first, first + BATCH)
    ]


def run(root: str, topic: str, name: str, first: int, seconds: float, pause: float) -> None:
    """Send batch after batch, from number ``first`` on, for some time after the first."""
    until: float | None = None
    with (
        offsetlog.open(root) as log,
        log.producer(app_id=name, sequence=first) as producer,
    ):
        sequence = first
        while until is None or time.monotonic() < until:
            futures = [producer.send(topic, value, key) for key, value in values(name, sequence)]
            producer.flush()
            places = [future.result() for future in futures]
            sys.stdout.write(
                f"{sequence} {' '.join(f'{m.partition}:{m.offset}' for m in places)}\n"
            )
            sys.stdout.flush()
            sequence += 1
            until = until or time.monotonic() + seconds
            time.sleep(pause)


if __name__ == "__main__":
    root, topic, name, first, seconds, pause = sys.argv[1:]
    run(root, topic, name, int(first), float(seconds), float(pause))
