"""For programs with Spark: a session with everything set, the topics, positions and lag of a log
as frames and SQL views, and a listener that reports the lag of running queries.

``format("offsetlog")`` itself needs no import: Spark finds it by the name of its package.
PySpark loads when a function here is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offsetlog.environment import INSTALL_SPARK, check_spark
from offsetlog.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from offsetlog.engine.upkeep.maintenance import Maintained
    from pyspark_offsetlog.about.listener import LagListener, LagMetrics, LagReport

__all__ = [
    "LagListener",
    "LagReport",
    "lag",
    "maintain",
    "offsets",
    "positions",
    "register",
    "session",
    "topics",
    "views",
    "watch_lag",
]


def session(
    app_name: str = "offsetlog",
    *,
    master: str | None = None,
    delta: bool = True,
    config: Mapping[str, Any] | None = None,
) -> SparkSession:
    """A Spark session with everything set: the workers' Python, Arrow batches, and Delta by the
    jar that fits this Spark (``delta=False`` leaves its download out). Where there is none yet, a
    warning says so, and the session goes without.

    Without ``master`` it runs on this machine. With ``master="spark://host:7077"`` it runs on a
    cluster: executors start the same Python as this process, by its path, which must exist on
    every machine, this one too, with the same versions of Python and offsetlog. A task that
    finds none or another offsetlog says so in one line; a path that is not there is Spark's
    ``Cannot run program "/path/python"``. Another Python is chosen with ``PYSPARK_PYTHON`` or
    ``config={"spark.pyspark.python": "/path/python"}``. ``spark.driver.host`` is this machine's
    loopback: set it where workers are elsewhere.
    What ``config`` says wins over all that is set here.
    """
    _check_spark()
    from pyspark_offsetlog.runtime.session import build

    return build(app_name, master, delta, dict(config or {}))


def register(spark: SparkSession) -> None:
    """Make ``format("offsetlog")`` known to a session that does not find it by itself.

    Spark finds it where the Python that Spark starts has the package. Where it has not, a local
    session gets the Python of this program for its workers, if none was chosen; a chosen one
    that lacks it is an error. On Spark Connect this registers it from the client; the server's
    Python needs the package all the same.
    """
    _check_spark()
    from pyspark_offsetlog.runtime.session import register_source

    register_source(spark)


# --- what is known about a log -----------------------------------------------------------------


def offsets(
    spark: SparkSession,
    root: str,
    group: str | None = None,
    *,
    delta: bool | None = None,
    offsets_table: str | None = None,
    **storage_options: Any,
) -> DataFrame:
    """The offsets table: every fact of every group (or of one), a row each.

    Columns: ``group, topic, partition, offset, metadata, committed_at, generation, reset,
    member, kind, write_id, version, place``; ``offset`` is the next one to read, ``kind`` is
    ``commit``, ``reset``, ``join`` and others, and rows are ordered by ``version`` and
    ``place``.

    It is the Delta table ``<root>/__consumer_offsets``, read by delta-spark where this session
    can: local paths as they are, ``s3://`` as ``s3a://`` when hadoop-aws and its settings
    (``fs.s3a...``) are in the session, ``gs://`` likewise. Where Delta has no way (Azure by
    adlfs' addresses, sftp, smb, memory) offsetlog's client reads the same rows; where Delta
    should have one and fails, a warning says why and the client reads them.
    ``delta=True`` makes that an error, ``delta=False`` always uses the client.

    Live: a query made of it shows the facts of that moment; Delta holds one frame to what its
    first action saw (``frame.select("*")`` looks again). Only a ``memory://`` root is copied.
    """
    _check_spark()
    from pyspark_offsetlog.about import about_frames as frames

    place = frames.place_of(root, offsets_table, storage_options)
    return frames.offsets_frame(spark, place, group, delta)


def positions(
    spark: SparkSession,
    root: str,
    group: str | None = None,
    *,
    offsets_table: str | None = None,
    **storage_options: Any,
) -> DataFrame:
    """The present position of each group, a row for each partition: what the facts add up to.

    Columns: ``group, topic, partition, offset, metadata, committed_at, generation, member,
    kind, version``; ``kind`` says what the position rests on (``commit`` or ``reset``).
    Live: each action shows the present. Only a ``memory://`` root is copied.
    """
    _check_spark()
    from pyspark_offsetlog.about import about_frames as frames

    place = frames.place_of(root, offsets_table, storage_options)
    return frames.table_frame(spark, place, "positions", group)


def lag(
    spark: SparkSession,
    root: str,
    group: str | None = None,
    *,
    offsets_table: str | None = None,
    **storage_options: Any,
) -> DataFrame:
    """How far each group is behind, a row for each partition that it has a position in.

    Columns: ``group, topic, partition, committed, log_start, log_end, lag_records, lag_bytes,
    lag_seconds, expired, out_of_range, member, metadata``. ``lag_seconds`` is the age of the
    oldest record that is not committed; ``expired`` counts records that retention took first.
    The columns are null for a topic that is gone.
    Live: each action looks at the log again, which costs one small read for each partition that
    is behind; ``cache()`` holds one look. Only a ``memory://`` root is copied.
    """
    _check_spark()
    from pyspark_offsetlog.about import about_frames as frames

    place = frames.place_of(root, offsets_table, storage_options)
    return frames.table_frame(spark, place, "lag", group)


def topics(spark: SparkSession, root: str, **storage_options: Any) -> DataFrame:
    """The topics, a row for each partition.

    Columns: ``topic, partition, beginning_offset, end_offset, records, bytes``.
    Live: each action shows the present. Only a ``memory://`` root is copied.
    """
    _check_spark()
    from pyspark_offsetlog.about import about_frames as frames

    return frames.table_frame(spark, frames.place_of(root, None, storage_options), "topics")


def views(
    spark: SparkSession,
    root: str,
    *,
    prefix: str = "offsetlog_",
    delta: bool | None = None,
    offsets_table: str | None = None,
    **storage_options: Any,
) -> tuple[str, ...]:
    """Make the four of them temporary views, for SQL, and give their names:
    ``offsetlog_offsets``, ``offsetlog_positions``, ``offsetlog_lag`` and ``offsetlog_topics``.

    ``SELECT * FROM offsetlog_lag WHERE group = 'billing' ORDER BY lag_records DESC``

    Live: each query of a view shows the present. A snapshot is only what is made of a
    ``memory://`` root, and which reader ``offsetlog_offsets`` uses (see ``offsets``): before
    any group has committed it is the client. Calling this again replaces the views.
    In SQL alone, without Python:
    ``CREATE TEMPORARY VIEW lag USING offsetlog OPTIONS (path 's3://bucket/log', table 'lag')``.
    """
    _check_spark()
    from pyspark_offsetlog.about import about_frames as frames

    place = frames.place_of(root, offsets_table, storage_options)
    return frames.make_views(spark, place, prefix, delta)


# --- the lag of running queries ----------------------------------------------------------------


def watch_lag(
    spark: SparkSession,
    callback: Callable[[LagReport], object] | None = None,
    *,
    metrics: LagMetrics | None = None,
    root: str | None = None,
    queries: tuple[str, ...] | None = None,
    history: int = 1000,
    **storage_options: Any,
) -> LagListener:
    """Report, with every progress of every query that reads from offsetlog, how far it is behind
    in records, bytes and seconds, for each partition.

    ``callback`` gets a ``LagReport``; without one a small table is printed. ``metrics`` is an
    ``offsetlog.metrics.Metrics``, which shows the newest report of each running query in its
    scrapes (``offsetlog_query_lag``) and to a page; then nothing is printed. ``queries`` are the
    names of those that are watched (all, if left out). The listener that is returned keeps the
    last report of each query in ``last`` and the newest ones in ``history``; a notebook shows
    it as a table. ``listener.stop()`` ends it.

    The lag is measured beside the query, in a thread of its own, and never holds it up: if it
    takes longer than a micro-batch, the next report is of the newest progress. It is counted
    from the end of the batch to the end of the log at that moment. Errors of measuring and of
    the callback are reported once, as a warning, and the next progress is tried again.

    The root is taken from the query itself. On Spark Connect, which does not show a query's
    options, name it (with its ``storage_options``); without it only records are known there,
    up to what the query last saw of the log. A program with a listener on Spark Connect ends
    only after ``listener.stop()``.
    """
    _check_spark()
    from pyspark_offsetlog.about.listener import LagListener

    listener = LagListener(
        spark,
        callback,
        metrics=metrics,
        root=root,
        queries=queries,
        history=history,
        **storage_options,
    )
    listener.start()
    return listener


# --- upkeep ------------------------------------------------------------------------------------


def maintain(
    spark: SparkSession,
    root: str,
    topics: str | Sequence[str] | None = None,
    *,
    grace_ms: int | None = None,
    offsets_retention_minutes: int | None = None,
    offsets_table: str | None = None,
    **storage_options: Any,
) -> list[Maintained]:
    """One round of upkeep, like ``log.maintain()``, with the rewriting of files shared out over
    Spark's executors: for a log that one machine can't keep up with, or a large backlog.

    ``topics`` names those that are looked after; without it they are all, and the groups too. Each
    task reads and writes up to 128 MiB of records at a time; everything else is a few requests,
    made by the driver. Others may do the same meanwhile, and a job may be killed at any moment.
    """
    _check_spark()
    from pyspark_offsetlog import upkeep
    from pyspark_offsetlog.about import about_frames as frames

    names = upkeep.topics_of(topics)
    place = frames.place_of(root, offsets_table, storage_options)
    more = {} if grace_ms is None else {"grace_ms": grace_ms}
    return upkeep.maintain(
        spark, place, names, offsets_retention_minutes=offsets_retention_minutes, **more
    )


def _check_spark() -> None:
    """Before the plugin is imported: an older Spark has not all that it is made of."""
    try:
        import pyspark
    except ModuleNotFoundError:
        raise InvalidRequestError(
            "PySpark is not installed.", f"Install it with: {INSTALL_SPARK}"
        ) from None
    check_spark(pyspark.__version__)


def __getattr__(name: str) -> Any:
    if name in ("LagListener", "LagReport"):
        from pyspark_offsetlog.about import listener

        return getattr(listener, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
