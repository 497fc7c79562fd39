"""A topic to be compacted; and, as a program, one pass over it and what that took."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from bench.memory import high_water_mb

TOPIC = "prices"
BATCH = 500_000
VALUE_BYTES = 60


def fill(log: Any, keys: int, records: int) -> None:
    """A record for each key, then newer ones for some: of some 85 bytes each, in segments."""
    import numpy as np
    import pyarrow as pa

    log.create_topic(TOPIC, config={"cleanup.policy": "compact"})
    rng = np.random.default_rng(1)
    with log.producer() as producer:
        for low in range(0, records, BATCH):
            count = min(BATCH, records - low)
            numbers = np.arange(low, low + count) * 7919 % keys
            named = np.char.add("customer-", np.char.zfill(numbers.astype("U10"), 10))
            values = np.char.zfill(rng.integers(0, 10**18, count).astype("U18"), VALUE_BYTES)
            table = {"key": pa.array(named).cast(pa.binary()), "value": pa.array(values)}
            producer.send_arrow(TOPIC, pa.table(table)).result()


def main(url: str) -> None:
    """One pass, by the processor's time of all threads: the machine may have other work."""
    import offsetlog
    from offsetlog.engine.upkeep.compaction import KeyCompaction

    with offsetlog.open(url) as log:
        topic = log.open_topic(TOPIC)
        state = topic.state()
        begin = time.process_time()
        now_ms = int(time.time() * 1000)
        compacted = KeyCompaction(topic).run(now_ms, lambda: now_ms)
        seconds = time.process_time() - begin
    found = {
        "records_per_core_second": state.end(0) / seconds,
        "high_water_mb": high_water_mb(),
        "dropped": compacted.records,
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
