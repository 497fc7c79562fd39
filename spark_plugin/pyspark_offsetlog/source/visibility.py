"""What is out of sight, as opposed to what is gone, and what becomes of a query then.

Invariants:

1. Gone is what the chain says: a topic that was deleted, a log start that moved. A chain only
   grows and offsets are never given twice, so an end before what somebody has seen already, or
   a topic without its first entry, is a disk that is not mounted or that shows an older view.
   That is an error, whatever ``failOnDataLoss`` says.
2. What a network disk shows late is looked for again, for a moment.
3. Records that are gone are an error with ``failOnDataLoss``; without, a warning, once for each
   thing that is lost, and the query goes on with what there is.
"""

from __future__ import annotations

import socket

from offsetlog.core.topic.state import TopicState
from offsetlog.engine import OpenTopic
from offsetlog.errors import OffsetOutOfRangeError, StorageError
from pyspark_offsetlog.runtime.user_errors import warn

LOOKS, LOOK_SECONDS = 5, 0.1
"""Each pause is twice the last: three seconds in all."""
RECREATED_HINT = (
    "If the topic was purged and recreated, or the checkpoint is another log's, give the query a "
    "new checkpointLocation; if it is a group that stands there, reset it."
)


def state_with(topic: OpenTopic, partition: int, end: int) -> TopicState:
    """The topic as it is now, deleted or not, with all that was seen of a partition up to
    ``end``; an error if that is not in sight."""
    state = topic.chain.state
    for look in range(LOOKS + 1):
        state = topic.refresh()
        if partition < len(state.parts) and state.end(partition) >= end:
            return state
        if look < LOOKS:
            topic.chain.env.sleep(LOOK_SECONDS * 2**look)
    raise out_of_sight(topic, state, partition, end)


def out_of_sight(topic: OpenTopic, state: TopicState, partition: int, end: int) -> StorageError:
    """That this machine does not see records that somebody saw."""
    host, where = socket.gethostname(), topic.chain.store.url
    if partition < len(state.parts):
        seen = f"sees the log only up to {state.end(partition)}"
    elif state.tip:
        seen = "sees no such partition"
    else:
        seen = "sees no such topic"
    return StorageError(
        f"{topic.name}-{partition} was seen up to {end} before, but the machine {host} {seen}, at "
        f"{where}.",
        "Nothing is skipped. Look whether all machines see the same disk there. " + RECREATED_HINT,
    )


class DataLoss:
    def __init__(self, fails: bool) -> None:
        self._fails = fails
        self._told: set[str] = set()

    def __call__(self, what: str) -> None:
        """Records that were asked for are gone."""
        if self._fails:
            raise OffsetOutOfRangeError(
                what, "Set failOnDataLoss=false to go on with what is there."
            )
        if what not in self._told:
            self._told.add(what)
            warn(f"{what} failOnDataLoss is false, so the query goes on.")
