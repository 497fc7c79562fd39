"""A thousand records a second offered, sent as they come: how many are acknowledged in time.

Prints the count acknowledged within the time, and the longest wait of a record.
"""

from __future__ import annotations

import json
import sys
from time import perf_counter, sleep
from typing import Any

from bench.processes import tell, wait_for_start

TICK = 0.02


def main(seconds: float, rate: float, url: str, options: str = "{}") -> None:
    """Offer records at a rate for so long."""
    import offsetlog

    acked: list[float] = []

    def watch(future: Any, sent: float) -> None:
        future.add_done_callback(lambda done: acked.append(perf_counter() - sent))

    with offsetlog.open(url, **json.loads(options)) as log, log.producer() as producer:
        producer.send("orders", value=b"warm").result()
        wait_for_start()
        begin = perf_counter()
        sent = 0
        while (now := perf_counter()) < begin + seconds:
            due = int((now - begin) * rate)
            for _ in range(due - sent):
                watch(producer.send("orders", value=b"v" * 100), now)
            sent = due
            sleep(TICK)
        tell({"records": len(acked), "longest_s": max(acked, default=seconds)})


if __name__ == "__main__":
    main(float(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:])
