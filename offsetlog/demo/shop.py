"""A shop of the demo, a producer in plain Python: ``python -m offsetlog.demo.shop FOLDER NAME``.

Invariants:

1. A line on stdin asks for a batch: its number, and the timestamp of its records. Both determine
   the whole batch, so a batch that is sent again after a crash is the same batch.
2. The number is the batch's sequence under the shop's ``app_id``: sent again, it counts once.
3. A line is printed only for a batch that was acknowledged: partition and offset of each record.
"""

from __future__ import annotations

import sys

import offsetlog
from offsetlog.demo.orders import BATCH, TOPIC, encode


def main(folder: str, name: str) -> None:
    with offsetlog.open(f"{folder}/log") as log:
        for line in sys.stdin:
            sequence, timestamp = map(int, line.split())
            with log.producer(app_id=name, sequence=sequence) as producer:
                futures = []
                for number in range(sequence * BATCH, (sequence + 1) * BATCH):
                    key, value = encode(name, number)
                    futures.append(producer.send(TOPIC, value, key, timestamp=timestamp))
            places = (future.result() for future in futures)
            print(*(f"{place.partition}:{place.offset}" for place in places), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
