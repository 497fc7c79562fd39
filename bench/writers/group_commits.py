"""One process that commits for a group of its own as fast as it can, one commit at a time."""

from __future__ import annotations

import os
import sys
from time import perf_counter

from bench.processes import tell, wait_for_start


def main(seconds: float, url: str) -> None:
    import offsetlog

    with offsetlog.open(url) as log, log.consumer(f"g{os.getpid()}") as consumer:
        consumer.assign([("orders", 0)])
        consumer.commit({("orders", 0): 1})
        wait_for_start()
        commits = 0
        deadline = perf_counter() + seconds
        while perf_counter() < deadline:
            consumer.commit({("orders", 0): commits % 2})
            commits += 1
    tell({"commits": commits})


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2])
