"""The driver's part of a write: one entry for each topic, under a key that makes it count once.

Invariants:

1. A micro-batch is (query id, batch id), a write in ``foreachBatch`` (txnAppId, txnVersion). A
   number that counted is acknowledged as it is, whatever the rows are this time; a lower one is
   passed over, as in Delta. A batch that looks like one that counted under another query id is
   refused.
2. What a topic gets of a write is one entry: all of it is seen at once, or nothing.
3. Nothing is deleted here. A zombie of this driver may still land an entry that names the same
   segments; only the collector knows when nothing can name them any more.
4. An error says what is known: nothing was written, some topics were, or it may have been.
5. The entry goes to the root that was planned with, and names no segment that this machine
   cannot find where looking is free: on a disk. An object store's own answer to a put is as good.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql.datasource import WriterCommitMessage

from offsetlog.client.log import Log
from offsetlog.engine import (
    OpenTopic,
    Receipt,
    Sender,
    TaskShare,
    append_shares,
    may_be_again,
    records_in,
)
from offsetlog.errors import InvalidRequestError, OffsetLogError
from offsetlog.logs import get_logger
from pyspark_offsetlog.options.spec import LogAddress
from pyspark_offsetlog.runtime.open_logs import open_log
from pyspark_offsetlog.runtime.user_errors import warn
from pyspark_offsetlog.sink.task import TaskMessage

logger = get_logger(__name__)

_QUERY_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_AGAIN_STREAM = "Start the query again: it runs the batch again, and each record is there once."
_AGAIN_TXN = "Write it again with the same txnAppId and txnVersion: each record is there once."
_AGAIN_BARE = "Look at the topic before writing again; with txnAppId and txnVersion that is safe."


def commit_write(
    place: LogAddress,
    own: Sender | None,
    messages: Sequence[WriterCommitMessage | None],
    batch_id: int | None,
) -> tuple[str, ...]:
    """Append what the tasks have staged, and name the topics. ``own`` is the sender of a batch
    write; tasks of a stream know theirs."""
    # A write without a single task brings a message that is None, and there is nothing in it.
    staged = [message for message in messages if isinstance(message, TaskMessage)]
    by_topic: dict[str, list[TaskShare]] = {}
    for message in staged:
        for share in message.shares:
            by_topic.setdefault(share.topic, []).append(share)
    if not by_topic:
        return ()
    sender = own or _sender_of(staged, batch_id)
    log = _log_of(place, staged)
    written: list[str] = []
    for name in sorted(by_topic):
        try:
            topic = log.open_topic(name)
            # A number that counted is found before anything is written for it.
            topic.refresh()
            if own is None:
                _check_query_id(topic, by_topic[name], sender)
            _append(topic, by_topic[name], sender)
        except OffsetLogError as error:
            raise _with_outcome(error, own, written) from error
        written.append(name)
    return tuple(written)


def _log_of(place: LogAddress, messages: Sequence[TaskMessage]) -> Log:
    roots = {message.root_id for message in messages}
    if len(roots) > 1:
        raise InvalidRequestError(
            f"The tasks of this write were planned with different logs at {place.url}.",
            "Nothing was written. Write it again.",
        )
    log = open_log(place._replace(root_id=roots.pop()))
    if not log.root.is_fixed:
        log.root.check()
    return log


def _warn_of_gap(
    topic: OpenTopic, shares: Sequence[TaskShare], sender: Sender, receipt: Receipt
) -> None:
    """A number that counted before is an old driver or a batch that is run again, which is as
    it should be. But with other rows they would be missed without a word."""
    landed, staged = sum(run.records for run in receipt.placed), records_in(shares)
    if not receipt.placed:
        why = "which holds a later one already"
        hint = "where a checkpoint was restored, or numbers began anew, use a new one, or txnAppId"
    elif staged != landed:
        why = f"which holds it with {landed} records in place of these {staged}"
        hint = "a second write of a batch to one topic needs a txnAppId of its own"
    else:
        return
    batch = f"batch {sender.seq} of {sender.app}"
    warn(f"{batch} is not written to topic {topic.name!r}, {why}: {hint}.")


def _sender_of(messages: Sequence[TaskMessage], batch_id: int | None) -> Sender:
    queries = {message.query for message in messages}
    query = queries.pop()
    if queries or not query or batch_id is None:
        raise InvalidRequestError(
            "Spark did not tell all tasks of this micro-batch which query they belong to.",
            "Without that it cannot be written exactly once. Use foreachBatch with txnAppId and "
            "txnVersion.",
        )
    return Sender(query, batch_id, False, True)


def _check_query_id(topic: OpenTopic, shares: Sequence[TaskShare], sender: Sender) -> None:
    """Spark before 4.2 gives a query another id if its checkpoint's file ``metadata`` is lost. A
    batch that it runs again is then the first of that id here, and the last of the old one."""
    senders = topic.chain.state.callers
    if not sender.seq or senders.get(sender.app) is not None:
        return
    for app, last in senders.items():
        if last.seq != sender.seq or not _QUERY_ID.fullmatch(app):
            continue
        if may_be_again(topic, last.entry, shares):
            records = records_in(shares)
            raise InvalidRequestError(
                f"Batch {sender.seq} of the query {sender.app} is its first in topic "
                f"{topic.name!r}, which holds batch {sender.seq} of the query {app} with as many "
                f"records ({records}). A query whose checkpoint lost its file 'metadata' gets "
                "another id from Spark, and would write its batch twice.",
                f'Put the file back: {{"id":"{app}"}}. If these are two queries, start this one '
                "again when the other has gone on, or with a new checkpointLocation.",
            )


def _append(topic: OpenTopic, shares: Sequence[TaskShare], sender: Sender) -> None:
    receipt = append_shares(topic, shares, sender)
    if receipt is not None and receipt.duplicate:
        logger.info("Write %d of %s is in topic %r already.", sender.seq, sender.app, topic.name)
        _warn_of_gap(topic, shares, sender, receipt)


def _with_outcome(
    error: OffsetLogError, own: Sender | None, written: Sequence[str]
) -> OffsetLogError:
    """The error, with what is known of this write."""
    message, hint = error.message, error.hint
    if written:
        message += f" Written before it: {', '.join(written)}."
    if error.may_have_landed or written:
        again = _AGAIN_BARE if own is not None and own.own else _AGAIN_TXN
        again = _AGAIN_STREAM if own is None else again
        # What is wrong with a topic is still to be put right before it can be written again.
        hint = again if error.may_have_landed else f"{hint} {again}".strip()
    landed = error.may_have_landed or bool(written)
    return type(error)(message, hint, retryable=error.retryable, may_have_landed=landed)
