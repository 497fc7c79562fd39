"""What a user sets with ``.option(...)``: parsed once, checked whole, plain values from then on.

Invariants:

1. Names are compared without case, as Spark does. An unknown name, a value that does not parse
   and two options that contradict each other are errors that name the option, the value and
   what is allowed.
2. Options that only a Kafka client would need are accepted, since a moved query has them; one
   warning names them all.
3. No value of a ``storage.`` option is ever shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from offsetlog.engine import parse_option, refuse_one_slash, safe_url
from offsetlog.errors import InvalidRequestError
from offsetlog.values import did_you_mean
from pyspark_offsetlog.options.parse import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    BadValue,
    OffsetBound,
)
from pyspark_offsetlog.options.spec import (
    ENDS,
    JVM_TASKS,
    SINK,
    SOURCE,
    STARTS,
    SUBSCRIPTIONS,
    TABLE,
    LogAddress,
    Options,
    SinkOptions,
    SourceOptions,
    TableOptions,
)

KAFKA_ONLY = re.compile(r"(kafka|kafkaconsumer|fetchoffset)\..+|groupidprefix", re.ASCII)
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", JVM_TASKS})
"""What Spark itself was told about a stream, and hands to its sink; and what its JVM asks for."""
_IN_PLACE_OF = {
    "kafka.auto.offset.reset": "startingOffsets=group with auto.offset.reset",
    "groupidprefix": "group.id",
    "kafka.enable.auto.commit": "group.id",
}


MIN_MAINTAIN_MS = 1000


def is_source(options: Mapping[str, str]) -> bool:
    """Whether these can only be meant for reading."""
    return any(name.lower() in options for name in SUBSCRIPTIONS)


def source_options(options: Mapping[str, str], streaming: bool | None) -> SourceOptions:
    """``streaming`` is None where that is not known yet: then both kinds pass."""
    texts, values = _read(options, SOURCE, "the source")
    subscriptions = [name for name in SUBSCRIPTIONS if name.lower() in texts]
    if len(subscriptions) != 1:
        which = " and ".join(subscriptions) + " are set" if subscriptions else "None of them is set"
        raise InvalidRequestError(
            f"What to read is said by exactly one of {', '.join(SUBSCRIPTIONS)}. {which}.",
            "For example .option('subscribe', 'orders').",
        )
    if values["start"] is None:
        kind = "earliest" if streaming is False else "latest"
        values["start"] = OffsetBound(kind, option="startingOffsets")
    # Kafka takes any text; here it begins a member's name.
    client = re.sub(r"[^a-zA-Z0-9._-]", "-", texts.get("kafka.client.id", ""))[:200]
    source = SourceOptions(place=_place(texts, values), client=client, **values)
    _check_together(texts, source, streaming)
    return source


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    texts, values = _read(options, SINK, "the sink")
    app, version = values.pop("txn_app_id"), values.pop("txn_version")
    if (app is None) != (version is None):
        there, missing = ("txnAppId", "txnVersion")[:: 1 if version is None else -1]
        raise InvalidRequestError(
            f"The option {there} is set and {missing} is not.", "They belong together: set both."
        )
    if app is not None and len(app) > 1024:
        raise _bad_value("txnAppId", app, "1 to 1024 characters")
    txn = None if app is None else (app, version)
    place = _place(texts, values)
    interval = values["maintain_ms"]
    if interval is not None and interval < MIN_MAINTAIN_MS:
        raise _bad_value("maintainInterval", texts["maintaininterval"], "at least 1s")
    if interval is not None and place.root.startswith("memory:"):
        raise InvalidRequestError(
            "maintainInterval is set for a log in memory, which no other process sees.",
            "Leave it out, and call log.maintain() in this one.",
        )
    return SinkOptions(place=place, txn=txn, **values)


def table_options(options: Mapping[str, str]) -> TableOptions:
    texts, values = _read(options, TABLE, "a table")
    return TableOptions(place=_place(texts, values), **values)


# --- reading -------------------------------------------------------------------------------


def _lowered(options: Mapping[str, str]) -> dict[str, str]:
    return {str(name).lower(): str(value) for name, value in options.items()}


def _read(
    options: Mapping[str, str], table: Options, side: str
) -> tuple[dict[str, str], dict[str, Any]]:
    """The texts by lowered name, and the values by field. Options that do not count because
    another one does are parsed all the same, so that a typo is found."""
    texts = _lowered(options)
    _refuse_unknown(texts, table, side)
    values: dict[str, Any] = {}
    for option in table.values():
        text = texts.get(option.name.lower())
        if text is None:
            continue
        try:
            value = option.parse(text)
        except BadValue as bad:
            raise _bad_value(option.name, text, str(bad)) from None
        if isinstance(value, OffsetBound):
            value = value._replace(option=option.name)
        first = values.setdefault(option.field, value)
        if option.field in ("root", "group") and first != value:
            other = "path" if option.field == "root" else "group.id"
            raise InvalidRequestError(
                f"{other} is {safe_url(first)!r} and {option.name} is {safe_url(value)!r}.",
                "They mean the same: set one.",
            )
    defaults = {option.field: option.default for option in table.values()}
    return texts, {**defaults, **values}


def _refuse_unknown(texts: Mapping[str, str], table: Options, side: str) -> None:
    names = {name.lower(): name for name in table}
    for name in texts:
        if name in names or KAFKA_ONLY.fullmatch(name):
            continue
        if (table is SINK and name in _SPARKS_OWN) or re.fullmatch(r"storage\..+", name, re.DOTALL):
            continue
        hint = f"Known: {', '.join(table)}."
        if name in {n.lower() for n in (*SOURCE, *SINK)}:
            raise InvalidRequestError(f"{name!r} is not an option of {side}.", hint)
        near = did_you_mean(name, names)
        if not near.startswith("Known"):
            hint = near
            for low, full in names.items():
                hint = hint.replace(repr(low), repr(full))
        raise InvalidRequestError(f"There is no option {name!r}.", hint)


def _bad_value(name: str, value: str, allowed: str) -> InvalidRequestError:
    shown = value if len(value) <= 200 else value[:200] + "..."
    return InvalidRequestError(f"The option {name} cannot be {shown!r}.", f"Allowed: {allowed}.")


def _place(texts: Mapping[str, str], values: dict[str, Any]) -> LogAddress:
    """The log; what says so is taken out of the values."""
    root, single_writer = values.pop("root"), values.pop("single_writer")
    offsets_table = values.pop("offsets_table", None)
    if root is None:
        raise InvalidRequestError(
            "No path is set.", "Give the root of the log: .option('path', 's3://bucket/log')."
        )
    if "path" not in texts and _is_servers(root):
        raise InvalidRequestError(
            f"kafka.bootstrap.servers is {root!r}, which names Kafka brokers.",
            "offsetlog has none: give the root of the log, such as s3://bucket/log.",
        )
    storage = {
        name.removeprefix("storage."): parse_option(text)
        for name, text in texts.items()
        if name.startswith("storage.")
    }
    for name in ("url", "single_writer", "offsets_table"):
        if name in storage:
            raise InvalidRequestError(
                f"storage.{name} is no option of a filesystem.",
                "Use path, single_writer and offsets.table.",
            )
    return LogAddress(
        absolute(root),
        tuple(sorted(storage.items())),
        single_writer,
        None if offsets_table is None else absolute(offsets_table),
    )


def absolute(path: str) -> str:
    """Tasks run in other folders: a path that is relative here would be another one there."""
    refuse_one_slash(path)
    is_url = "://" in path or path.startswith(("file:", "local:"))
    return path if is_url else os.path.abspath(os.path.expanduser(path))


def _is_servers(text: str) -> bool:
    """``host:9092,host:9092``, and no path or URL."""
    return all(
        re.fullmatch(r"[a-zA-Z0-9.\[\]_-]+:[0-9]{1,5}", part.strip(), re.ASCII)
        for part in text.split(",")
    )


# --- warnings ------------------------------------------------------------------------------


def ignored_warning(options: Mapping[str, str], table: Options) -> str:
    """About the options that are accepted and do nothing; empty if there are none."""
    ours = {name.lower() for name in table} | {"kafka.client.id"}
    idle = sorted(n for n in _lowered(options) if n not in ours and KAFKA_ONLY.fullmatch(n))
    if not idle:
        return ""
    hints = [f"{_IN_PLACE_OF[name]} in place of {name}" for name in idle if name in _IN_PLACE_OF]
    warning = f"offsetlog has no Kafka client, so these options do nothing: {', '.join(idle)}."
    return warning + (f" Use {'; '.join(hints)}." if hints else "")


def overruled_warning(options: Mapping[str, str]) -> str:
    """About starts and ends that another option overrules; empty if there are none."""
    texts = _lowered(options)
    warnings = []
    for names in (STARTS, ENDS):
        first, *others = [name for name in names if name.lower() in texts] or [""]
        if others:
            verb = "is" if len(others) == 1 else "are"
            warnings.append(f"{first} is set, so {' and '.join(others)} {verb} passed over.")
    return " ".join(warnings)


# --- options that contradict each other ----------------------------------------------------


def _check_together(
    texts: Mapping[str, str], source: SourceOptions, streaming: bool | None
) -> None:
    low, high = source.min_offsets, source.max_offsets
    if low is not None and high is not None and low > high:
        raise InvalidRequestError(
            f"minOffsetsPerTrigger={low} is more than maxOffsetsPerTrigger={high}.",
            "Lower the one or raise the other.",
        )
    if source.start.kind == "group" and source.group is None:
        raise InvalidRequestError(
            "startingOffsets=group needs a group.", "Set group.id to its name."
        )
    if streaming:
        for name in ENDS:
            if name.lower() in texts:
                raise InvalidRequestError(
                    f"The option {name} is set for a stream, which has no end.",
                    "Leave it out, or read with spark.read.",
                )
    if streaming is False:
        _check_batch(source)


def _check_batch(source: SourceOptions) -> None:
    if source.start.kind == "latest":
        raise InvalidRequestError(
            "startingOffsets=latest would read nothing in a batch query.",
            "Use earliest, offsets, -N (records before the end), or a time.",
        )
    if source.end.kind == "earliest":
        raise InvalidRequestError(
            "endingOffsets=earliest would read nothing.", "Use latest, or offsets."
        )
    refused = ((source.start, LATEST_OFFSET, "latest"), (source.end, EARLIEST_OFFSET, "earliest"))
    for bound, number, word in refused:
        if bound.kind != "offsets":
            continue
        for topic, each in bound.each.items():
            for partition, offset in each.items():
                if offset == number:
                    raise InvalidRequestError(
                        f"{bound.option} for {topic}-{partition} is {offset} ({word}), which "
                        "a batch query cannot take.",
                        "Give an offset that is there.",
                    )
