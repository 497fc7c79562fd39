"""Tasks of a write that Spark's JVM runs: the plan they get, and the message they send.

Invariants:

1. The plan is asked for by the class in the JVM, in an option, and only one of this very version
   gets it. Without a plan Python runs the tasks.
2. The plan is the one that Python's tasks have, said in JSON. It is for a log on a local disk.
3. A row that the JVM can't write, and all after it in its task, are written, or refused, by
   Python: the words of an error have one home.
4. The driver commits what such tasks staged like all else.
"""

from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql.types import BinaryType, StructType

import offsetlog
from offsetlog.client.log import Log
from offsetlog.engine import TopicAtPlanning, disk_failures, facts_of, share_of, topic_folder
from offsetlog.errors import OffsetLogError, OffsetLogWarning
from offsetlog.logs import get_logger
from pyspark_offsetlog.options.spec import JVM_TASKS
from pyspark_offsetlog.runtime.marked_json import marked
from pyspark_offsetlog.runtime.open_logs import open_log
from pyspark_offsetlog.sink import task
from pyspark_offsetlog.sink.plan import WritePlan

logger = get_logger(__name__)

MARK = b"offsetlog-write!"
MOST_TOPICS = 100
"""Where rows name their topics, the plan has all that there are. With more of them Python runs the
tasks: each topic is looked at for each plan."""


def are_asked_for(options: Mapping[str, str]) -> bool:
    """Whether a class in the JVM asks for a plan of tasks that it runs."""
    version = options.get(JVM_TASKS)
    if version not in (None, offsetlog.__version__):
        logger.info("Python writes: the jar in Spark's JVM is of offsetlog %s.", version)
    return version == offsetlog.__version__


def plan_for_jvm(plan: WritePlan, schema: StructType) -> bytes:
    """The plan for tasks in the JVM; empty where Python runs them."""
    log = open_log(plan.place)
    root = log.store.delta_address("") if log.store.is_local else None
    root_file = log.root.file() if root is not None else None
    if root is None or root_file is None:
        return b""
    topics = _named(log) if plan.topic is None else [plan.topic]
    if not topics:
        return b""
    columns = plan.columns._asdict()
    for name in ("key", "value"):
        place = columns[name]
        kind = schema.fields[place].dataType
        columns[f"text_{name}"] = place >= 0 and not isinstance(kind, BinaryType)
    return marked(
        MARK,
        {
            "root": root,
            "url": log.store.url,
            "root_id": plan.place.root_id,
            "root_file": root_file.decode(),
            "columns": columns,
            "spread": plan.spread,
            "in_stream": plan.sender is None,
            "buffer_bytes": task.BUFFER_BYTES,
            "message_bytes": task.MESSAGE_BYTES,
            "messages_bytes": task.MESSAGES_BYTES,
            "one_topic": plan.topic is not None,
            "topics": [_told(topic) for topic in topics],
            "failures": disk_failures(),
        },
    )


def _named(log: Log) -> list[TopicAtPlanning]:
    """The topics that rows may name; none if there are too many."""
    out = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OffsetLogWarning)
        names = log.topics()
    for name in names if len(names) <= MOST_TOPICS else ():
        try:
            out.append(facts_of(log.open_topic(name)))
        except OffsetLogError:
            continue  # A row that names it goes to Python, which says why.
    return out


def _told(topic: TopicAtPlanning) -> dict[str, Any]:
    config = topic.settings
    return {
        "name": topic.name,
        "folder": topic_folder(topic.name),
        "partitions": topic.partitions,
        "created_at_entry": topic.created_at_entry,
        "tip": topic.tip,
        "segment_bytes": config.segment_bytes,
        "compression": config.compression,
        "max_message_bytes": config.max_message_bytes,
        "append_time": config.log_append_time,
        "needs_key": config.compacts,
    }


def message_of(text: bytes, files: Iterable[bytes], pickled: bytes | None) -> task.TaskMessage:
    """The message of a task in the JVM. ``files`` have each share's rows that are in no segment;
    ``pickled`` is the message of a Python that wrote the rest of the task's rows."""
    told = json.loads(text)
    shares = tuple(share_of(share, file) for share, file in zip(told["shares"], files, strict=True))
    if pickled is not None:
        rest: task.TaskMessage = pickle.loads(pickled)
        shares += rest.shares
    return task.TaskMessage(told["query"], shares, told["root_id"])
