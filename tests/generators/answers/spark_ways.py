"""The ways to ask that need Spark: each is one function, as in ``ways.py``.

1. They ask in the session that ``use`` was given last; without one there are none.
2. Each question chooses who reads (the JVM, Python's columns, Python's rows) and in which zone the
   JVM and the session are. No answer depends on either.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from offsetlog.environment import spark_lacks
from tests.generators.answers import planted
from tests.generators.answers.model import Rec
from tests.generators.answers.states import TIMES, one_step
from tests.generators.answers.ways import Difference, Way, same
from tests.generators.answers.world import Asked

READERS = ("auto", "python", "rows")
READER, ZONE = "spark.offsetlog.reader", "spark.sql.session.timeZone"
ZONES = ("UTC", "America/Los_Angeles", "Europe/Amsterdam", "Asia/Kolkata", "Pacific/Apia")
SECONDS = 60.0
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    # Some users have it on. It must change no row.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.python.authSocketTimeout": "120s",
    "spark.sql.streaming.stopTimeout": "60s",
}
_session: Any = None
_names = itertools.count()


def use(session: Any) -> None:
    """Ask in this session from now on; None: in none."""
    global _session
    _session = session


def session() -> Any:
    return _session


@contextmanager
def own_session() -> Iterator[None]:
    """Ask in a session of its own meanwhile; in none where there is no Java."""
    if spark_lacks():
        yield
        return
    import offsetlog.spark

    build = Path(offsetlog.__file__).parents[1] / "spark_plugin" / "java" / "build.py"
    built = subprocess.run([sys.executable, build], check=True, capture_output=True, text=True)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(prefix="offsetlog-answers-") as place:
        config = {**SETTINGS, "spark.local.dir": place, "spark.sql.warehouse.dir": place}
        if first := planted.class_path(Path(built.stdout.strip()), Path(place)):
            config["spark.driver.extraClassPath"] = first
        made = offsetlog.spark.session("answers", master="local[2]", delta=False, config=config)
        made.sparkContext.setLogLevel("OFF")
        use(made)
        try:
            yield
        finally:
            use(None)
            _end(made)


def _end(made: Any) -> None:
    """With its JVM: the next session may need other classes."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    made.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(SECONDS)
    SparkContext._gateway = SparkContext._jvm = None


@contextmanager
def _in_zone(rng: random.Random) -> Iterator[str]:
    """A reader and two zones; what to say of them."""
    reader, zone, own = rng.choice(READERS), rng.choice(ZONES), rng.choice(ZONES)
    zones = _session._jvm.java.util.TimeZone
    before = zones.getDefault()
    was = {name: _session.conf.get(name, None) for name in (READER, ZONE)}
    try:
        zones.setDefault(zones.getTimeZone(zone))
        _session.conf.set(READER, reader)
        _session.conf.set(ZONE, own)
        yield f"by {reader} in {zone}, {own}"
    finally:
        zones.setDefault(before)
        for name, value in was.items():
            if value is None:
                _session.conf.unset(name)
            else:
                _session.conf.set(name, value)


def _frame(ask: Asked, given: dict[str, Any], *, stream: bool = False) -> Any:
    reader = (_session.readStream if stream else _session.read).format("offsetlog")
    given = {"includeHeaders": "true", **given}
    if not given.keys() & {"subscribe", "subscribePattern"}:
        given["subscribe"] = ask.name
    if stream:
        given["startingOffsets"] = "earliest"
    for name, value in given.items():
        reader = reader.option(name, str(value))
    return reader.load(ask.world.root)


ALL = (
    "topic", "partition", "offset", "key", "value", "headers", "unix_millis(timestamp) AS ms",
)  # fmt: skip


def _plain(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def _records(rows: Iterable[Any]) -> list[tuple[str, Rec]]:
    out = []
    for row in rows:
        headers = tuple((h["key"], _plain(h["value"])) for h in row["headers"] or ())
        record = Rec(
            row["partition"], row["offset"], _plain(row["key"]), _plain(row["value"]), headers,
            row["ms"],
        )  # fmt: skip
        out.append((row["topic"], record))
    return sorted(out, key=lambda one: (one[0], one[1][:2]))


def _all(ask: Asked, *names: str) -> list[tuple[str, Rec]]:
    return [(n, r) for n in sorted(names or (ask.name,)) for r in ask.world.topics[n].records()]


def _tasks(rng: random.Random) -> dict[str, Any]:
    """How a batch is cut into tasks."""
    return rng.choice(({}, {"minPartitions": 7}, {"maxRecordsPerPartition": 5}))


def batch(ask: Asked) -> None:
    """All that there is, or a range of offsets, or what is there from a time on."""
    rng = ask.rng
    given, expected = _tasks(rng), _all(ask)
    dice = rng.random()
    parts = ask.topic.parts
    if dice < 0.3:
        low = {p: rng.randint(part.start, part.end) for p, part in enumerate(parts)}
        high = {p: rng.randint(low[p], part.end) for p, part in enumerate(parts)}
        given["startingOffsets"] = _offsets(ask.name, low)
        given["endingOffsets"] = _offsets(ask.name, high)
        expected = [(n, r) for n, r in expected if low[r.partition] <= r.offset < high[r.partition]]
    elif dice < 0.5:
        time_ms = max(rng.choice(TIMES), 0)
        at = {p: part.at_time(time_ms) for p, part in enumerate(parts)}
        given |= {"startingTimestamp": time_ms, "startingOffsetsByTimestampStrategy": "latest"}
        lows = {p: parts[p].end if found is None else found for p, found in at.items()}
        expected = [(n, r) for n, r in expected if r.offset >= lows[r.partition]]
    with _in_zone(rng) as how:
        rows = _records(_frame(ask, given).selectExpr(*ALL).collect())
        same(f"a batch {how} with {given}", rows, expected)


def _offsets(topic: str, offsets: dict[int, int]) -> str:
    inner = ", ".join(f'"{p}": {at}' for p, at in offsets.items())
    return f'{{"{topic}": {{{inner}}}}}'


class Condition(NamedTuple):
    sql: str
    passes: Callable[[Rec], bool]


def _condition(ask: Asked) -> Condition:
    rng = ask.rng
    records = ask.topic.records()
    one = rng.choice(records) if records else Rec(0, 0, None, None, (), 0)
    two = rng.choice(records) if records else one
    low, high = sorted((one.offset, two.offset))
    began, ended = sorted((one.timestamp, two.timestamp))
    at = f"timestamp_millis({one.timestamp})"
    places = (
        Condition(f"partition = {one.partition}", lambda r: r.partition == one.partition),
        Condition("partition IN (0, 2)", lambda r: r.partition in (0, 2)),
        Condition(f"offset > {low} AND offset <= {high}", lambda r: low < r.offset <= high),
        Condition(f"offset IN ({low}, {high}, 7)", lambda r: r.offset in (low, high, 7)),
        Condition(f"topic = '{ask.name}'", lambda r: True),
        Condition("topic = 'no such topic'", lambda r: False),
        Condition("value IS NULL", lambda r: r.value is None),
    )
    times = (
        Condition(f"timestamp = {at}", lambda r: r.timestamp == one.timestamp),
        Condition(f"timestamp < {at}", lambda r: r.timestamp < one.timestamp),
        Condition(
            f"timestamp BETWEEN timestamp_millis({began}) AND timestamp_millis({ended})",
            lambda r: began <= r.timestamp <= ended,
        ),
        Condition(f"timestamp BETWEEN {at} AND {at}", lambda r: r.timestamp == one.timestamp),
        Condition(
            f"timestamp IN ({at}, timestamp_millis({ended}))",
            lambda r: r.timestamp in (one.timestamp, ended),
        ),
        Condition(
            f"timestamp >= {at} OR offset = {low}",
            lambda r: r.timestamp >= one.timestamp or r.offset == low,
        ),
    )
    return rng.choice(rng.choice((places, times, times)))


def filters(ask: Asked) -> None:
    """Conditions on partition, offset, timestamp, topic and value, and counts."""
    rng = ask.rng
    for _ in range(4):
        some = [_condition(ask) for _ in range(rng.choice((1, 1, 2)))]
        condition = " AND ".join(f"({one.sql})" for one in some)
        expected = [
            (r.partition, r.offset)
            for r in ask.topic.records()
            if all(one.passes(r) for one in some)
        ]
        with _in_zone(rng) as how:
            frame = _frame(ask, _tasks(rng)).where(condition)
            if rng.random() < 0.3:
                same(f"a count {how} of {condition}", frame.count(), len(expected))
                continue
            rows = sorted(map(tuple, frame.select("partition", "offset").collect()))
            same(f"a filter {how}: {condition}", rows, expected)


def _values(headers: tuple[tuple[str, bytes | None], ...]) -> list[bytes | None] | None:
    return [value for _, value in headers] if headers else None


PATHS: dict[str, Callable[[Rec], Any]] = {
    "headers.value": lambda r: _values(r.headers),
    "headers.key": lambda r: [name for name, _ in r.headers] if r.headers else None,
    "headers[0].value": lambda r: r.headers[0][1] if r.headers else None,
    "headers[0].key": lambda r: r.headers[0][0] if r.headers else None,
    "size(headers)": lambda r: len(r.headers) if r.headers else None,
    "transform(headers, h -> h.value)": lambda r: _values(r.headers),
    "exists(headers, h -> h.value IS NULL)": lambda r: (
        any(value is None for _, value in r.headers) if r.headers else None
    ),
    "length(value)": lambda r: None if r.value is None else len(r.value),
    "key": lambda r: r.key,
    "timestampType": lambda r: 0,
}


INTO_HEADERS = ("headers.value", "headers.key", "headers[0].value", "headers[0].key")


def _as_python(found: Any) -> Any:
    if isinstance(found, bytearray):
        return bytes(found)
    return [_as_python(one) for one in found] if isinstance(found, list) else found


def paths(ask: Asked) -> None:
    """Some columns, and paths into them."""
    rng = ask.rng
    # Mostly into headers, of which Spark then asks for a part.
    chosen = rng.sample(list(PATHS), 2) if rng.random() < 0.4 else rng.sample(INTO_HEADERS, 1)
    names = [f"{path} AS c{n}" for n, path in enumerate(chosen)]
    with _in_zone(rng) as how:
        frame = _frame(ask, _tasks(rng)).selectExpr("partition", "offset", *names)
        rows = sorted(([_as_python(one) for one in row] for row in frame.collect()),
                      key=lambda row: row[:2])  # fmt: skip
    expected = [
        [r.partition, r.offset, *(PATHS[path](r) for path in chosen)] for r in ask.topic.records()
    ]
    same(f"paths {how}: {chosen}", rows, expected)


def exploded(ask: Asked) -> None:
    """Only the values of headers, or only their names, a row each."""
    rng = ask.rng
    field = rng.choice(("key", "value"))
    with _in_zone(rng) as how:
        frame = _frame(ask, _tasks(rng)).selectExpr("explode(headers) AS h")
        rows = [_as_python(row[0]) for row in frame.selectExpr(f"h.{field}").collect()]
    at = ("key", "value").index(field)
    expected = [header[at] for record in ask.topic.records() for header in record.headers]
    same(f"h.{field} of exploded headers {how}", sorted(rows, key=repr), sorted(expected, key=repr))


def several_sources(ask: Asked) -> None:
    """All topics by a list or a pattern, two frames in one query, and a limit."""
    rng, names = ask.rng, sorted(ask.world.topics)
    expected = _all(ask, *names)
    given = rng.choice(({"subscribe": ",".join(names)}, {"subscribePattern": "[tu]"}))
    with _in_zone(rng) as how:
        if rng.random() < 0.5:
            frames = [_frame(ask, {"subscribe": name}) for name in names]
            frame = frames[0]
            for more in frames[1:]:
                frame = frame.union(more)
        else:
            frame = _frame(ask, {**given, **_tasks(rng)})
        limit = rng.randint(0, len(expected) + 3)
        same(f"limit {limit} {how}", len(frame.limit(limit).collect()), min(limit, len(expected)))
        rows = _records(frame.selectExpr(*ALL).collect())
        same(f"several sources {how}", rows, expected)


# --- streams -------------------------------------------------------------------------------


class _Query:
    """A stream whose rows are kept."""

    def __init__(self, ask: Asked, given: dict[str, Any], available_now: bool) -> None:
        self.rows: list[Any] = []
        frame = _frame(ask, given, stream=True).selectExpr(*ALL)
        writer = frame.writeStream.foreachBatch(lambda some, _: self.rows.extend(some.collect()))
        place = ask.world.folder / f"checkpoint-{next(_names)}"
        writer = writer.option("checkpointLocation", str(place))
        if available_now:
            writer = writer.trigger(availableNow=True)
        self.query = writer.start()

    def until(self, condition: Callable[[], bool]) -> bool:
        end = time.monotonic() + SECONDS
        while not condition():
            error = self.query.exception()
            if error is not None:
                raise error
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True


def _limits(rng: random.Random) -> dict[str, Any]:
    return rng.choice(
        (
            {"maxOffsetsPerTrigger": 15},
            {"maxBytesPerTrigger": 2000, "minPartitions": 5},
            {"minPartitions": 7},
            {"maxRecordsPerPartition": 5},
            {},
        )
    )


def _check_group(ask: Asked, query: _Query, group: str) -> None:
    """When all is read the group stands at the ends, and nothing waits. Where there was nothing to
    read there was no batch, so nothing is committed."""
    ends = {(ask.name, p): part.end for p, part in enumerate(ask.topic.parts)}
    if all(part.start == part.end for part in ask.topic.parts):
        ends = {}

    def positions() -> dict[Any, int]:
        return {tuple(tp): at.offset for tp, at in ask.log.group(group).committed().items()}

    if not query.until(lambda: positions() == ends):
        raise Difference(f"the group of a query stands at {positions()}, not {ends}")
    found = {tuple(tp): count for tp, count in ask.log.group(group).lag().items()}
    same("the lag of a query's group", found, dict.fromkeys(ends, 0))


def stream(ask: Asked) -> None:
    """A stream over all that there is, in small batches."""
    group = f"query-{next(_names)}"
    given = {**_limits(ask.rng), "group.id": group}
    with _in_zone(ask.rng) as how:
        one = _Query(ask, given, available_now=True)
        try:
            if not one.query.awaitTermination(int(SECONDS)):
                raise Difference(f"a stream {how} with {given} does not end")
        finally:
            one.query.stop()
        same(f"a stream {how} with {given}", _records(one.rows), _all(ask))
    _check_group(ask, one, group)


AFTER = ("a round", "an erasure", "entries", "a killed round", "a snapshot", "records deleted")


def replay(ask: Asked) -> None:
    """A query that runs while files are rewritten, and whose group is then reset."""
    group = f"query-{next(_names)}"
    given = {**_limits(ask.rng), "group.id": group}
    world = ask.world
    with _in_zone(ask.rng) as how:
        one = _Query(ask, given, available_now=False)
        try:
            expected = _all(ask)
            one.until(lambda: len(one.rows) >= len(expected))
            one.query.processAllAvailable()
            same(f"a running query {how} with {given}", _records(one.rows), expected)
            steps = ask.rng.sample(AFTER, ask.rng.randint(1, 3))
            for name in steps:
                one_step(world, name, ask.topic)
            one.query.processAllAvailable()
            one.rows.clear()
            world.programs[0].log.group(group).reset(ask.name, to="earliest", dry_run=False)
            expected = _all(ask)
            one.until(lambda: len(one.rows) >= len(expected))
            one.query.processAllAvailable()
            what = f"a replay {how} with {given} after {steps}"
            if _records(one.rows) != expected:
                # Rows that came while the log was changed may be among them.
                same(what, _records(one.rows), expected)
        finally:
            one.query.stop()


SPARK_WAYS: dict[str, Way] = {
    "Spark: batch": batch,
    "Spark: filters": filters,
    "Spark: paths": paths,
    "Spark: exploded headers": exploded,
    "Spark: several sources": several_sources,
    "Spark: stream": stream,
    "Spark: replay": replay,
}
