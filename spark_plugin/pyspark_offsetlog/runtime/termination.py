"""How the process that plans a stream ends: its group is given up first.

Where a query is stopped, Spark sends its planner SIGTERM, once or more, closes the pipes of its
output, and cuts the line.

Invariants:

1. No signal raises an exception in the planner's thread: it could leave a lock held or a look
   half taken. The cut line ends that thread, after what it is doing.
2. A planner whose thread does not end within ``PATIENCE`` gives the group up beside it, and ends.
3. It is the planner's process alone that this is done in.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
"""The program of the process that Spark starts for each source of a query."""
PATIENCE = 2.0


def leave_when_terminated(leave: Callable[[], None]) -> None:
    """Have ``leave`` called before a signal ends this process. In its main thread."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is None or spec.name != RUNNER:
        return
    signals, writer = os.pipe()
    os.set_blocking(writer, False)
    # What the handler does not do, whoever reads the pipe does, whatever this thread is at.
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    threading.Thread(
        target=_watch, args=(signals, leave), name="offsetlog-terminated", daemon=True
    ).start()


def _watch(signals: int, leave: Callable[[], None]) -> None:
    while signal.SIGTERM not in os.read(signals, 64):
        pass
    time.sleep(PATIENCE)
    end(leave)


def end(leave: Callable[[], None]) -> None:
    """Leave, and end this process, which has nothing else to do, without a word: nobody reads
    what PySpark would write of the line that was cut."""
    try:
        leave()
    finally:
        os._exit(0)
