"""A worker of the demo: one process that reads as a member of a group.

Invariants:

1. A line on stdout names what a poll gave, before any of it is committed.
2. It ends at SIGTERM by leaving the group, or at once by SIGKILL.
"""

from __future__ import annotations

import signal
import sys
import time
import warnings

import offsetlog

GROUP = "billing"
SESSION_MS = 2000


def main(root: str, name: str, batch: int, pause: float) -> None:
    warnings.simplefilter("ignore")
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    with (
        offsetlog.open(root) as log,
        log.consumer(
            GROUP, ["orders"], auto_offset_reset="earliest", enable_auto_commit=False,
            session_timeout_ms=SESSION_MS, client_id=name,
        ) as consumer,
    ):  # fmt: skip
        while not stopped:
            records = consumer.poll(0.1, batch)
            holds = ",".join(str(tp.partition) for tp in sorted(consumer.assignment()))
            given = " ".join(f"{r.partition}:{r.offset}" for r in records)
            print(f"{holds}|{given}", flush=True)
            if records:
                consumer.commit()
                time.sleep(pause)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
