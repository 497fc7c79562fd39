"""Upkeep with the rewriting shared out over a Spark cluster.

Invariants:

1. Tasks only write segments, which nobody reads until the driver lets them count, by entries in
   the chain. So a task that is killed, run again or run twice at once does no harm; what it wrote
   in vain is collected like any unused segment.
2. A task gets runs of one group, whose files are read once, at most ``REWRITE_BYTES`` of them.
3. Everything else of a round is the driver's: it is a few requests, and decided there.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from offsetlog.core.topic.rewrite import RewritePlan
from offsetlog.engine import GRACE_MS, Maintained, Maintenance, Rewritten
from offsetlog.errors import InvalidRequestError, OffsetLogError, StorageError
from pyspark_offsetlog.options.spec import LogAddress
from pyspark_offsetlog.runtime.open_logs import open_log, with_root_id
from pyspark_offsetlog.runtime.pickling import PickledWithReason
from pyspark_offsetlog.runtime.user_errors import one_line_errors

SCHEMA = "number int, payload binary"
GROUPS_AT_ONCE = 256
"""Of a job: what they rewrote counts when the job is done."""


def maintain(
    spark: SparkSession,
    place: LogAddress,
    topics: Iterable[str] | None,
    *,
    grace_ms: int = GRACE_MS,
    offsets_retention_minutes: int | None = None,
) -> list[Maintained]:
    """One round over these topics; without any of them over all, with the offsets table."""
    place = with_root_id(place)
    log = open_log(place)
    more: dict[str, Any] = {"grace_ms": grace_ms}
    if offsets_retention_minutes is not None:
        more["offsets_retention_minutes"] = offsets_retention_minutes
    if not place.root.startswith("memory:"):
        more["share_out"] = _Jobs(spark, place).share_out
    if topics is None:
        return log.maintain(**more)
    return [report for topic in topics for report in log.maintain(topic, **more)]


class _Jobs:
    """Spark jobs, a task for each group of runs."""

    def __init__(self, spark: SparkSession, place: LogAddress) -> None:
        self._spark = spark
        self._place = place

    def share_out(self, topic: str, groups: list[list[RewritePlan]]) -> Iterator[Rewritten]:
        for low in range(0, len(groups), GROUPS_AT_ONCE):
            yield from self._run(topic, groups[low : low + GROUPS_AT_ONCE])

    def _run(self, topic: str, groups: list[list[RewritePlan]]) -> list[Rewritten]:
        rows = [(number, bytearray(pickle.dumps(group))) for number, group in enumerate(groups)]
        work = _Rewrite(self._place, topic)
        try:
            tasks = self._spark.createDataFrame(rows, SCHEMA).repartition(len(rows))
            # A function of rows, since those of Arrow's batches ask for pandas.
            rewrite = udf(_as_function(work), "binary", useArrow=False).asNondeterministic()
            done = tasks.select("number", rewrite("payload").alias("payload")).collect()
        except OffsetLogError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever Spark says of its tasks
            raise StorageError(
                f"The Spark job that rewrites files of {topic!r} failed: {_reason(error)}",
                "What other jobs rewrote counts. Do it again.",
                retryable=False,
            ) from error
        by_number = {row.number: pickle.loads(bytes(row.payload)) for row in done}
        return [by_number[number] for number in range(len(groups))]


class _Rewrite(PickledWithReason):
    """What a task does."""

    def __init__(self, place: LogAddress, topic: str) -> None:
        self._place = place
        self._topic = topic

    @one_line_errors
    def run(self, payload: bytes) -> bytes:
        """The runs of a group, rewritten."""
        topic = open_log(self._place).open_topic(self._topic)
        topic.state()
        return pickle.dumps(Maintenance(topic).rewrite(pickle.loads(payload)))


def _as_function(work: _Rewrite) -> Callable[[Any], Any]:
    """Spark asks a function for its name and its arguments."""

    def rewrite(payload: Any) -> Any:
        return work.run(bytes(payload))

    return rewrite


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("offsetlog.errors.")]
    return (ours or lines or [type(error).__name__])[0][:500]


def topics_of(topics: object) -> list[str] | None:
    """The names of topics that a caller gave."""
    if topics is None:
        return None
    if isinstance(topics, str):
        return [topics]
    if isinstance(topics, Iterable) and all(isinstance(topic, str) for topic in topics):
        return list(topics)
    raise InvalidRequestError(f"The topics are {topics!r}.", "Name one, or a list of names.")
