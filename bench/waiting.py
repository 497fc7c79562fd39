"""A topic whose appends wait for upkeep; and, as a program, one round over it and its memory."""

from __future__ import annotations

import json
import os
import sys
from typing import Any
from unittest import mock

from bench.memory import high_water_mb

TOPIC = "orders"


def fill(url: str, appends: int) -> None:
    """Entries of one record each. That they are not synced to the disk is no part of a figure."""
    import offsetlog

    def unsynced(fd: int) -> None:
        pass

    files: Any = "offsetlog.storage.local.files._sync_data"
    not_synced = mock.patch.object(os, "fsync", unsynced), mock.patch(files, unsynced)
    with not_synced[0], not_synced[1], offsetlog.open(url) as log:
        log.create_topic(TOPIC)
        with log.producer(linger_ms=0) as producer:
            for number in range(appends):
                producer.send(TOPIC, b"value %d" % number).result()


def main(url: str) -> None:
    import offsetlog

    with offsetlog.open(url) as log:
        [report] = log.maintain(TOPIC)
    found = {"high_water_mb": high_water_mb(), "files": report.rewritten_files}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
