"""Paths into columns: Spark asks a source for the parts of a column that a query names."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_offsetlog.runtime.jar import SETTING
from tests.spark_plugin.live import opened

SECONDS, AT_LEAST = 25.0, 8
"""How long random queries go on, and how many there are on a machine that is busy."""
COUNT = 3000
KNOWN = (
    "select headers[0].value from t",
    "select headers.value from t",
    "select headers.value, headers.key, headers[0].key, headers from t",
    "select h.value from t lateral view explode(headers) e as h",
    "select offset from t where cast(headers[0].value as string) like 'v%'",
)
PATHS = (
    "headers", "headers.value", "headers.key", "headers[0]", "headers[0].value", "headers[0].key",
    "get(headers, 1).value", "get(headers, 2).key", "try_element_at(headers, -1).value",
    "size(headers)", "size(headers.value)", "slice(headers, 1, 1).value", "reverse(headers).value",
    "transform(headers, h -> h.value)", "transform(headers, h -> struct(h.value, h.key))",
    "filter(headers, h -> h.key > 'h').value", "filter(headers, h -> h.value is null).key",
    "arrays_zip(headers.key, headers.value)", "struct(headers.value as v).v",
    "array_contains(headers.key, 'h1')", "exists(headers, h -> h.value is null)",
    "cast(headers[0].value as string)", "coalesce(headers[0].value, value)",
    "aggregate(headers, 0, (n, h) -> n + length(coalesce(h.value, binary('abc'))))",
    "key", "value", "offset", "topic", "timestamp", "length(value)",
)  # fmt: skip
CONDITIONS = (
    "cast(headers[0].value as string) like 'v%'", "headers[0].key = 'h0'", "headers is null",
    "headers[0].value is null", "array_contains(headers.key, 'h2')", "offset % 3 = 1",
    "exists(headers, h -> h.value is null)", "partition = 1", "topic = 'turns' and offset < 3050",
)  # fmt: skip
PARTS = ("h.value", "h.key", "h", "h.value is null", "length(h.value)", "concat(h.key, '!')")
SCHEMA = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A topic in segments, one in entries, and one in both by turns; every third record has no
    headers."""
    with opened(tmp_path_factory.mktemp("paths")) as log:
        for topic, counts in {
            "segments": (COUNT,),
            "entries": (20, 30),
            "turns": (COUNT, 20, COUNT, 30),
        }.items():
            log.create_topic(topic, partitions=2)
            chance = random.Random(topic)
            for count in counts:
                # In one append, however slow the machine is.
                with log.producer(linger_ms=60_000) as producer:
                    for at in range(count):
                        producer.send(
                            topic,
                            chance.randbytes(300 if count == COUNT else 10),
                            key=None if at % 4 else b"k%d" % at,
                            headers=None if at % 3 == 0 else headers(chance),
                            partition=at % 2,
                        )
        yield Path(log.url.removeprefix("file://"))


def headers(chance: random.Random) -> list[tuple[str, bytes | None]]:
    values = (None, b"", b"v1", b"v22", b"w333")
    return [(f"h{i}", chance.choice(values)) for i in range(chance.randrange(1, 4))]


def answers(spark: Any, root: Path, query: str, schema: str | None) -> dict[str, list[str]]:
    """What each reader gives, in any order."""
    out = {}
    for reader in ("rows", "auto", "python"):
        spark.conf.set(SETTING, reader)
        source = spark.read.format("offsetlog").option("subscribe", "segments,entries,turns")
        if schema is not None:
            source = source.schema(schema)
        source.option("includeHeaders", "true").load(str(root)).createOrReplaceTempView("t")
        try:
            out[reader] = sorted(map(str, spark.sql(query).collect()))
        finally:
            spark.conf.unset(SETTING)
    return out


def check(spark: Any, root: Path, query: str, schema: str | None = None) -> None:
    found = answers(spark, root, query, schema)
    for reader in ("auto", "python"):
        wrong = next((pair for pair in zip(found["rows"], found[reader]) if pair[0] != pair[1]), ())
        assert found[reader] == found["rows"], f"{reader}, {query!r}, {schema}: {wrong}"


@pytest.mark.parametrize("query", KNOWN)
def test_a_part_of_a_column(spark: Any, root: Path, query: str) -> None:
    check(spark, root, query)


@pytest.mark.every_line
def test_values_of_headers_are_no_names(spark: Any, root: Path) -> None:
    query = "select distinct cast(headers.value[0] as string) as v from t"
    found = answers(spark, root, query, None)
    values = {f"Row(v={v!r})" for v in (None, "", "v1", "v22", "w333")}
    assert {reader: set(rows) for reader, rows in found.items()} == dict.fromkeys(found, values)


def random_query(chance: random.Random) -> tuple[str, str | None]:
    names = None
    if chance.random() < 0.5:
        names = chance.sample(list(SCHEMA), chance.randrange(1, len(SCHEMA)))
        names += [name for name in ("headers", "offset") if name not in names]
        chance.shuffle(names)

    def some(choices: tuple[str, ...]) -> list[str]:
        known = names or SCHEMA
        may = [
            c for c in choices if all(n in known for n in SCHEMA if n in c.replace("h.", "header."))
        ]
        return chance.sample(may, chance.randrange(1, min(4, len(may) + 1)))

    selected = ", ".join(f"{path} as c{i}" for i, path in enumerate(some(PATHS)))
    where = "where " + chance.choice((" and ", " or ")).join(some(CONDITIONS)[:2])
    where = chance.choice((where, ""))
    parts = ", ".join(f"{part} as p{i}" for i, part in enumerate(chance.sample(PARTS, 2)))
    explode = chance.choice(("explode", "explode_outer"))
    query = chance.choice((
        f"select {selected} from t {where}",
        f"select {selected} from (select * from t {where}) where headers.value is not null",
        f"select {parts} from (select {explode}(headers) as h from t {where})",
        f"select {parts}, offset from (select offset, {explode}(headers) as h from t {where})",
        f"select {parts} from t lateral view outer explode(headers) e as h {where}",
        f"select pos, {parts} from t lateral view posexplode(headers) e as pos, h {where}",
        f"select v from (select inline(headers) as (k, v) from t {where}) where k > 'h0'",
        f"select count(*), max(p0) from (select {parts} from t lateral view {explode}(headers) e"
        f" as h {where})",
        f"select c0, count(*) from (select {selected} from t {where}) group by c0",
        "select offset from t where headers[0].value in (select h.value from t lateral view"
        " explode(headers) e as h where h.key = 'h1')",
    ))  # fmt: skip
    schema = names and ", ".join(f"{name} {SCHEMA[name]}" for name in names)
    return query, schema


def test_random_paths(spark: Any, root: Path) -> None:
    """The same rows as rows that Python hands over whole; a query is made of its seed."""
    end = time.monotonic() + SECONDS
    for seed in range(1000):
        if seed >= AT_LEAST and time.monotonic() > end:
            break
        query, schema = random_query(random.Random(seed))
        check(spark, root, query, schema)
