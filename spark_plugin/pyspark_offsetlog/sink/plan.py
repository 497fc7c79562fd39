"""What is decided about a write before its first task runs.

Invariants:

1. A plan is plain values: Spark carries it to every task.
2. What can be refused at planning is: the options, the schema, a topic that is not there.
3. All tasks of a write to one topic use the partition count that the plan saw.
4. The plan names the root that it saw, and only planning makes one.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from pyspark.sql.types import StructType

from offsetlog.client.log import Log
from offsetlog.engine import Sender, TopicAtPlanning, facts_of
from offsetlog.errors import InvalidRequestError, TopicExistsError, UnknownTopicError
from pyspark_offsetlog.options.spec import LogAddress, SinkOptions
from pyspark_offsetlog.runtime.open_logs import open_log, with_root_id
from pyspark_offsetlog.sink.from_spark import SinkColumns, sink_columns

CREATE = "Create it, or set the option createTopicPartitions to the partitions that it shall have."


class WritePlan(NamedTuple):
    place: LogAddress
    """With the id of the root."""
    columns: SinkColumns
    create_partitions: int | None
    topic: TopicAtPlanning | None
    """Set by the option; None: each row names its topic."""
    sender: Sender | None
    """None: a stream, whose tasks know the query's id."""
    spread: int
    """Where rows without a key begin."""


def plan_of(options: SinkOptions, schema: StructType, streaming: bool) -> WritePlan:
    if streaming and options.txn is not None:
        raise InvalidRequestError(
            "txnAppId and txnVersion are set for a stream, which has a number of its own for "
            "each micro-batch.",
            "Leave them out; they are for df.write, for example in foreachBatch.",
        )
    columns = sink_columns(schema, options.topic is not None)
    place = _root_of(options)
    log = open_log(place)
    facts = None
    if options.topic is not None:
        facts = look_up(log, options.topic, options.create_partitions)
    sender, spread = None, 0
    if not streaming and options.txn is not None:
        sender = Sender(options.txn[0], options.txn[1], False, True)
        spread = options.txn[1]
    elif not streaming:
        # Nobody can ask for this write again, so its id need not be remembered forever.
        app = log.env.new_id()
        sender, spread = Sender(app, 0, True, True), int(app[:8], 16)
    return WritePlan(place, columns, options.create_partitions, facts, sender, spread)


def _root_of(options: SinkOptions) -> LogAddress:
    """The place with its root's id. That there is no log is said before any row is read."""
    try:
        return with_root_id(options.place)
    except InvalidRequestError:
        if options.create_partitions is None:
            raise
    open_log(options.place).root.create()
    return with_root_id(options.place)


def look_up(log: Log, name: str, create_partitions: int | None) -> TopicAtPlanning:
    """What the topic is now; it is created if it is not there and that is wanted."""
    topic = log.open_topic(name)
    try:
        return facts_of(topic)
    except UnknownTopicError as error:
        if create_partitions is None:
            raise UnknownTopicError(error.message, f"{error.hint} {CREATE}".strip()) from None
    # Somebody else may be as quick. If theirs is a name like this one, that is said below.
    with contextlib.suppress(TopicExistsError):
        log.create_topic(name, create_partitions)
    return facts_of(topic)
