"""One record after another, each acknowledged before the next: the waits of one process."""

from __future__ import annotations

import json
import sys
from time import perf_counter

from bench.processes import tell, wait_for_start


def main(seconds: float, url: str, options: str = "{}") -> None:
    """Append for so long and tell every wait."""
    import offsetlog

    waits = []
    with offsetlog.open(url, **json.loads(options)) as log, log.producer(linger_ms=0) as producer:
        producer.send("orders", value=b"warm").result()
        wait_for_start()
        end = perf_counter() + seconds
        begin = perf_counter()
        while begin < end:
            producer.send("orders", value=b"v" * 100).result()
            done = perf_counter()
            waits.append((done - begin) * 1e3)
            begin = done
    tell({"waits_ms": waits})


if __name__ == "__main__":
    main(float(sys.argv[1]), *sys.argv[2:])
