"""A worker process for the tests: reads as one of a group, and writes down what it was given.

What it was given is written down before it is committed, so what was committed was given.
"""

from __future__ import annotations

import json
import random
import sys
import time
import warnings
from pathlib import Path

import offsetlog


def main(root: str, journal: str, options: str) -> None:
    warnings.simplefilter("ignore")
    told = json.loads(options)
    chance = random.Random(told["seed"])
    leaves = told.get("leaves", 0.0)
    settings = told["settings"]
    deadline = time.monotonic() + told["seconds"]
    with offsetlog.open(root) as log, Path(journal).open("a") as out:

        def say(**what: object) -> None:
            out.write(json.dumps({"at": time.time(), **what}) + "\n")
            out.flush()

        def fresh():
            return log.consumer(
                "fight", ["orders"], auto_offset_reset="earliest", enable_auto_commit=False,
                on_assign=lambda c, p: say(has=[list(tp) for tp in p]), **settings,
            )  # fmt: skip

        consumer = fresh()
        stop = Path(journal).with_name("stop")
        while time.monotonic() < deadline and not stop.exists():
            try:
                batch = consumer.poll(0.1, max_records=chance.randrange(1, 60))
                if batch:
                    say(got=[[r.partition, r.offset] for r in batch])
                if chance.random() < told.get("commits", 0.5):
                    consumer.commit()
                    say(committed=True)
            except offsetlog.FencedError as error:
                say(fenced=str(error))
            if chance.random() < leaves:
                consumer.close()
                consumer = fresh()
        consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
