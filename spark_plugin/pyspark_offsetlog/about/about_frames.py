"""The offsets table, and what follows from it, as frames and as views.

Invariants:

1. A frame of a root that other processes reach is a plan, not data: each query of it, or of a
   view of it, shows the present. Only a root in this process's memory is copied, when the
   frame is made.
2. The offsets table is read by Delta itself where this session can; where it cannot, the
   client reads the same rows, and one warning says why. Nothing else differs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import offsetlog
from offsetlog.errors import InvalidRequestError
from offsetlog.filesystems import hadoop_url
from pyspark_offsetlog.about.tables import TABLES, read_table
from pyspark_offsetlog.options.check import absolute
from pyspark_offsetlog.options.spec import LogAddress
from pyspark_offsetlog.runtime.session import register_source
from pyspark_offsetlog.runtime.user_errors import warn

VIEWS = ("offsets", "positions", "lag", "topics")


def place_of(root: object, offsets_table: str | None, storage: Mapping[str, Any]) -> LogAddress:
    if not isinstance(root, (str, os.PathLike)) or not str(root):
        raise InvalidRequestError(
            f"The root is {root!r}.", "It is a path or a URL, such as s3://bucket/log."
        )
    return LogAddress(
        absolute(os.fspath(root)),
        tuple(sorted(storage.items())),
        False,
        None if offsets_table is None else absolute(offsets_table),
    )


def table_frame(
    spark: SparkSession, place: LogAddress, table: str, group: str | None = None
) -> DataFrame:
    """A table of the log, read by the client each time that the frame is used."""
    if place.root.startswith("memory:"):
        return _copied(spark, place, table, group)
    register_source(spark)
    reader = spark.read.format("offsetlog").option("table", table)
    if group is not None:
        reader = reader.option("group.id", group)
    if place.offsets_table is not None:
        reader = reader.option("offsets.table", place.offsets_table)
    for name, value in place.storage:
        reader = reader.option(f"storage.{name}", _as_text(value))
    return reader.load(place.root)


def _copied(spark: SparkSession, place: LogAddress, table: str, group: str | None) -> DataFrame:
    with _open(place) as log:
        rows = read_table(log, table, group)
    # Given the schema, an empty table is no riddle.
    from pyspark.sql.pandas.types import from_arrow_schema

    return spark.createDataFrame(rows, from_arrow_schema(TABLES[table].schema))


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, (dict, list)) else str(value)


def _open(place: LogAddress) -> Any:
    return offsetlog.open(place.root, offsets_table=place.offsets_table, **dict(place.storage))


# --- the offsets table itself ------------------------------------------------------------------


def offsets_frame(
    spark: SparkSession, place: LogAddress, group: str | None, delta: bool | None
) -> DataFrame:
    frame = None if delta is False else _through_delta(spark, place, must=delta is True)
    if frame is None:
        return table_frame(spark, place, "offsets", group)
    return frame if group is None else frame.where(frame["group"] == group)


def _through_delta(spark: SparkSession, place: LogAddress, must: bool) -> DataFrame | None:
    """The table as Delta reads it; None when Delta has no way to it."""
    with _open(place) as log:
        log.root.require()  # A root that is not there is an error, not an empty table
        address = log.offsets_table.port.delta_address
        written = log.offsets_table.look().version >= 0
    where = None if address is None else _hadoop_path(address)
    if where is None or not written:
        why = "no group has committed anything yet" if where else "Delta has no way to this root"
        if must:
            raise InvalidRequestError(
                f"The offsets table of {place.url} is not read through Delta: {why}.",
                "Leave delta out: then offsetlog's client reads it.",
            )
        return None
    try:
        frame = spark.read.format("delta").load(where)
        frame.schema  # noqa: B018 - Spark Connect looks only when it is asked
    except Exception as error:  # noqa: BLE001 - whatever this session lacks
        why = _first_line(error)
        if must:
            raise InvalidRequestError(
                f"Delta does not read {where} in this session: {why}",
                "It needs delta-spark and, for s3:// and gs://, the filesystem's jars and "
                "settings (fs.s3a...). Leave delta out: then offsetlog's client reads it.",
            ) from None
        warn(
            f"Delta does not read {where} in this session ({why}), so offsetlog's own client "
            "reads the offsets table. delta=False says so without this warning."
        )
        return None
    return frame


def _hadoop_path(address: str) -> str | None:
    return hadoop_url(address) if "://" in address else address


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix(": ") for line in lines if not line.startswith("An error occurred")]
    return (causes or [type(error).__name__])[0][:200]


# --- views -------------------------------------------------------------------------------------


def make_views(
    spark: SparkSession, place: LogAddress, prefix: str, delta: bool | None
) -> tuple[str, ...]:
    if not prefix.isascii() or not prefix.replace("_", "a").isalnum() or prefix[0].isdigit():
        raise InvalidRequestError(
            f"A view cannot begin with {prefix!r}.", "Use letters, digits and underscores."
        )
    names = []
    for table in VIEWS:
        frame = (
            offsets_frame(spark, place, None, delta)
            if table == "offsets"
            else table_frame(spark, place, table)
        )
        frame.createOrReplaceTempView(f"{prefix}{table}")
        names.append(f"{prefix}{table}")
    return tuple(names)
