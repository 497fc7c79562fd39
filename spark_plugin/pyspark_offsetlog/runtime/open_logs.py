"""The logs that this process has open.

Invariants:

1. One ``Log`` for a place and a process: Spark's workers are used again, so the next task or
   micro-batch finds the topic folded.
2. A process that was forked opens its own: threads and connections don't survive a fork.
3. At most ``MAX_OPEN`` stay open; the one that was not used for longest is let go.
4. Who plans finds out which root lies at a place (``with_root_id``) and tells the tasks its id. A
   log that was opened with an id keeps to that root: it creates none, and what was folded of
   another root that lay at the same place is not used for it.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict

from offsetlog.client.log import Log
from offsetlog.logs import get_logger
from offsetlog.opening import open_anywhere
from pyspark_offsetlog.options.spec import LogAddress

logger = get_logger(__name__)

MAX_OPEN = 16
_lock = threading.Lock()
_Key = tuple[int, str]
_open: OrderedDict[_Key, Log] = OrderedDict()
_root_ids: OrderedDict[_Key, str] = OrderedDict()
"""Of the roots at addresses that are fixed."""


def _key(place: LogAddress) -> _Key:
    return os.getpid(), repr(tuple(place))


def open_log(place: LogAddress) -> Log:
    """The log at a place; with an id, the one of that root alone. Asks nothing."""
    key = _key(place)
    with _lock:
        log = _open.get(key)
        if log is None:
            log = open_anywhere(
                place.root,
                single_writer=place.single_writer,
                offsets_table=place.offsets_table,
                **dict(place.storage),
            )
            if place.root_id is not None:
                log.root.keep_to(place.root_id)
            _keep(key, log)
        _open.move_to_end(key)
        return log


def with_root_id(place: LogAddress) -> LogAddress:
    """The place with the id of the root that is there now; an error if there is none. On a disk
    it is read each time, elsewhere once."""
    key = _key(place)
    root_id = _root_ids.get(key)
    if root_id is not None:
        return place._replace(root_id=root_id)
    log = open_log(place)
    root_id = log.root.find()
    place = place._replace(root_id=root_id)
    if log.root.is_fixed:
        # One connection is enough, and nobody asks this log again.
        log.root.keep_to(root_id)
        with _lock:
            _open.pop(key, None)
            _root_ids[key] = root_id
            while len(_root_ids) > MAX_OPEN:
                _root_ids.popitem(last=False)
            _keep(_key(place), log)
    return place


def _keep(key: _Key, log: Log) -> None:
    _open[key] = log
    while len(_open) > MAX_OPEN:
        # Not closed: somebody may be reading from it still.
        _, oldest = _open.popitem(last=False)
        logger.debug("Let %r go: more than %d logs are open.", oldest, MAX_OPEN)
