"""The loser that reads first: what most programs over put-if-absent do, as a peer.

It keeps its own tip. When its name is taken it reads from there until a name is missing, and
only then tries again, with all that was offered meanwhile. Bare HTTP, no library of ours.
"""

from __future__ import annotations

import sys
from time import perf_counter, sleep

from bench.floors.s3 import BareHttp
from bench.processes import tell, wait_for_start

RECORD_BYTES = 108
OVERHEAD_BYTES = 2_000
TICK = 0.02


def main(seconds: float, rate: float, endpoint: str, bucket: str, prefix: str) -> None:
    """Offer records at a rate for so long."""
    server = BareHttp(endpoint, bucket)
    wait_for_start()
    begin = perf_counter()
    tip = sent = 0
    longest = 0.0
    last = begin
    while (now := perf_counter()) < begin + seconds:
        waiting = int((now - begin) * rate) - sent
        if not waiting:
            sleep(TICK)
            continue
        body = b"v" * (OVERHEAD_BYTES + RECORD_BYTES * waiting)
        while not server.put_if_absent(f"{prefix}/{tip:020d}", body):
            while server.get(f"{prefix}/{tip:020d}") is not None:
                tip += 1
            if perf_counter() > begin + seconds:
                break
        else:
            tip += 1
            sent += waiting
            longest, last = max(longest, perf_counter() - last), perf_counter()
    tell({"records": sent, "longest_s": max(longest, perf_counter() - last)})


if __name__ == "__main__":
    main(float(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:])
