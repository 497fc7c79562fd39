"""A program that copies, to be killed: ``python -m tests.engine.copy.killed SRC DST [PLANTED]``.

It says ``ready`` when it is about to begin, and ``done`` when the copy is complete."""

from __future__ import annotations

import sys
import time
from typing import Any

import offsetlog
from offsetlog.engine.copy import topic, transfer


def entries_before_segments() -> None:
    """A planted bug: what an entry names is copied after it."""
    copy_segment, copy_entries = topic.TopicCopy._copy_segment, topic.TopicCopy._copy_entries

    def late(self: Any, *args: Any) -> None:
        waiting: list[Any] = []
        self._copy_segment = lambda segment: waiting.append(segment) or True
        copy_entries(self, *args)
        time.sleep(1.0 if waiting else 0.0)  # So that a kill meets it soon.
        for segment in waiting:
            copy_segment(self, segment)

    topic.TopicCopy._copy_entries = late  # type: ignore[method-assign]


PLANTED = {"entries before segments": entries_before_segments}


def slowly() -> None:
    """As on a network, so that a kill meets every step."""
    put, create = transfer.Transfer.put, transfer.Transfer.create

    def wait(call: Any) -> Any:
        def waiting(self: Any, *args: Any) -> Any:
            time.sleep(0.02)
            return call(self, *args)

        return waiting

    transfer.Transfer.put = wait(put)  # type: ignore[method-assign]
    transfer.Transfer.create = wait(create)  # type: ignore[method-assign]


if __name__ == "__main__":
    source, target, *planted = sys.argv[1:]
    slowly()
    for name in planted:
        PLANTED[name]()
    with offsetlog.open(source) as log:
        print("ready", flush=True)
        log.copy(target)
        print("done", flush=True)
