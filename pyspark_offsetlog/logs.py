"""The logs that this process has open.

Invariants:

1. One ``Log`` for a place and a process: Spark's workers are used again, so the next task or
   micro-batch finds the topic folded.
2. A process that was forked opens its own: threads and connections don't survive a fork.
3. At most ``MOST`` stay open; the one that was not used for longest is let go.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict

import offsetlog
from offsetlog.client.log import Log

from .options import Place

MOST = 16
_lock = threading.Lock()
_open: OrderedDict[tuple[int, str], Log] = OrderedDict()


def open_log(place: Place) -> Log:
    """The log at a place."""
    key = os.getpid(), repr(tuple(place))
    with _lock:
        log = _open.get(key)
        if log is None:
            log = offsetlog.open(
                place.root,
                single_writer=place.single_writer,
                offsets_table=place.offsets_table,
                **dict(place.storage),
            )
            _open[key] = log
            while len(_open) > MOST:
                # Not closed: somebody may be reading from it still.
                _open.popitem(last=False)
        _open.move_to_end(key)
        return log
