"""A worker of the demo, a member of the group in plain Python:
``python -m offsetlog.demo.worker FOLDER NAME``.

Invariants:

1. What a poll returned is committed once it is billed, before the next poll.
2. It knows nothing of the crash or the reset: the group handles both.
3. It pauses between batches, so that a viewer sees the lag go down.
"""

from __future__ import annotations

import sys
import threading
import warnings
from pathlib import Path

import offsetlog
from offsetlog.demo.billing import Billing
from offsetlog.demo.orders import GROUP, TOPIC
from offsetlog.demo.program import when_stdin_ends

SESSION_MS = 2000
POLL_RECORDS = 250
PAUSE = 0.1


def main(folder: str, name: str) -> None:
    warnings.simplefilter("ignore")
    ending = threading.Event()
    when_stdin_ends(ending.set)
    billing = Billing(Path(folder))
    with (
        offsetlog.open(f"{folder}/log") as log,
        log.consumer(
            GROUP, [TOPIC], auto_offset_reset="earliest", enable_auto_commit=False,
            session_timeout_ms=SESSION_MS, max_poll_records=POLL_RECORDS, client_id=name,
        ) as consumer,
    ):  # fmt: skip
        while not ending.is_set():
            records = consumer.poll(timeout=0.1)
            if not records:
                continue
            billing.bill((r.partition, r.offset, r.value or b"") for r in records)
            try:
                consumer.commit()
            except offsetlog.FencedError:
                continue  # It was expelled; the new owners of its partitions bill these.
            ending.wait(PAUSE)


if __name__ == "__main__":
    main(*sys.argv[1:])
