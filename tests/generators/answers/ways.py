"""Every way to ask a log that needs no Spark: each is one function, which raises ``Difference`` if
the answer is not the model's."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any
from unittest import mock
from urllib.parse import urlencode

import offsetlog
from offsetlog.metrics import Metrics
from offsetlog.page import records as page_records
from offsetlog.page.access import Access
from offsetlog.page.app import Page
from offsetlog.page.records import Query, RecordPage, read_page
from tests.cli.shell import offsetlog as command
from tests.generators.answers.model import Rec, Topic, merged
from tests.generators.answers.states import KEYS, TIMES
from tests.generators.answers.world import Asked, consumed, record_of


class Difference(AssertionError):
    """The answer is another than the model's."""


def same(what: str, found: Any, expected: Any) -> None:
    if found == expected:
        return
    if isinstance(found, list) and isinstance(expected, list):
        there, wanted = Counted(found), Counted(expected)
        lacks, more = wanted.without(there), there.without(wanted)
        raise Difference(
            f"{what}: {len(found)} of {len(expected)}; lacks {short(lacks)}; more {short(more)}"
            + ("" if lacks or more else "; another order")
        )
    raise Difference(f"{what}: {short(found)}, not {short(expected)}")


class Counted:
    def __init__(self, items: Iterable[Any]) -> None:
        self.items = list(items)
        self.known = {repr(item) for item in self.items}

    def without(self, other: Counted) -> list[Any]:
        return [item for item in self.items if repr(item) not in other.known]


def short(what: Any) -> str:
    items = what[:2] if isinstance(what, list) else what
    text = re.sub(r"x{20,}", "xx..", repr(items))[:400]
    return f"{len(what)}: {text}" if isinstance(what, list) else text


def _ends(topic: Topic) -> dict[int, int]:
    return {p: part.end for p, part in enumerate(topic.parts)}


def _starts(topic: Topic) -> dict[int, int]:
    return {p: part.start for p, part in enumerate(topic.parts)}


def _by_partition(records: Iterable[Rec], topic: Topic) -> dict[int, list[Rec]]:
    out: dict[int, list[Rec]] = {p: [] for p in range(len(topic.parts))}
    for record in records:
        out[record.partition].append(record)
    return out


def _same_records(what: str, found: dict[int, list[Rec]], expected: dict[int, list[Rec]]) -> None:
    for number, records in expected.items():
        same(f"{what}, partition {number}", found.get(number, []), records)


# --- consumers -----------------------------------------------------------------------------


def _begun(ask: Asked, consumer: Any) -> dict[int, list[Rec]]:
    """Assigns all partitions, some from an offset on; what is to come."""
    rng = ask.rng
    consumer.assign([(ask.name, p) for p in range(len(ask.topic.parts))])
    out = {}
    seeks = 1.0 if rng.random() < 0.4 else 0.3
    for number, part in enumerate(ask.topic.parts):
        low, dice = part.start, rng.random()
        if dice < seeks:
            low = rng.randint(part.start, part.end)
            consumer.seek((ask.name, number), low)
        elif dice < 0.4:
            time_ms = rng.choice(TIMES)
            found = part.at_time(time_ms)
            low = part.end if found is None else found
            consumer.seek_to_time(time_ms, (ask.name, number))
        elif dice < 0.45:
            consumer.seek_to_beginning((ask.name, number))
        out[number] = part.records(low)
    return out


def _at_end(ask: Asked, consumer: Any) -> bool:
    return all(
        consumer.position((ask.name, p)) >= part.end for p, part in enumerate(ask.topic.parts)
    )


def poll(ask: Asked) -> None:
    """A consumer from the start, an offset or a time on, so many records at a time."""
    with ask.log.consumer(auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        expected = _begun(ask, consumer)
        found: dict[int, list[Rec]] = {}
        limit = ask.rng.choice((1, 7, 500))
        while (polled := consumer.poll(0, max_records=limit)) or not _at_end(ask, consumer):
            for one in polled:
                found.setdefault(one.partition, []).append(record_of(one))
        _same_records("poll", found, expected)


def poll_arrow(ask: Asked) -> None:
    """The same in Arrow tables."""
    with ask.log.consumer(auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        expected = _begun(ask, consumer)
        found: dict[int, list[Rec]] = {}
        while (tables := consumer.poll_arrow(0)) or not _at_end(ask, consumer):
            for (_, number), table in tables.items():
                found.setdefault(number, []).extend(rows_of(number, table))
        _same_records("poll_arrow", found, expected)


def rows_of(number: int, table: Any) -> list[Rec]:
    times = page_records.milliseconds(table.column("timestamp"))
    return [
        Rec(
            number, row["offset"], row["key"], row["value"],
            tuple((h["key"], h["value"]) for h in row["headers"] or ()), int(ms),
        )
        for row, ms in zip(table.drop_columns(["timestamp"]).to_pylist(), times, strict=True)
    ]  # fmt: skip


def running_consumer(ask: Asked) -> bool:
    """A consumer that has polled before, and goes on or seeks: it gives what is there now."""
    mine = [one for one in ask.world.running if one.topic == ask.name]
    for one in mine:
        ask.world.running.remove(one)
        numbers = sorted(tp.partition for tp in one.consumer._cursor.positions)
        parts = {p: ask.topic.parts[p] for p in numbers}
        seeks = ask.rng.random() < 0.5
        lows = {}
        for number, part in parts.items():
            lows[number] = one.consumer.position((ask.name, number))
            if seeks:
                lows[number] = ask.rng.randint(part.start, part.end)
                one.consumer.seek((ask.name, number), lows[number])
        found: dict[int, list[Rec]] = {p: [] for p in numbers}
        while polled := one.consumer.poll(0):
            for record in map(record_of, polled):
                found[record.partition].append(record)
        ends = {p: one.consumer.position((ask.name, p)) for p in numbers}
        one.consumer.close()
        same("a running consumer's ends", ends, {p: part.end for p, part in parts.items()})
        for number, part in parts.items():
            what = (
                f"partition {number} of a running consumer that {'seeks to' if seeks else 'is at'}"
            )
            same(f"{what} {lows[number]}", found[number], part.records(lows[number]))
    return bool(mine)


def columns(ask: Asked) -> None:
    """What all others read by: any range, any columns."""
    rng, opened = ask.rng, ask.log.open_topic(ask.name)
    opened.state()
    for number, part in enumerate(ask.topic.parts):
        low, high = sorted(rng.randint(part.start, part.end) for _ in range(2))
        if rng.random() < 0.4:
            low, high = part.start, part.end
        names = rng.sample(("key", "value", "headers", "timestamp"), rng.randint(0, 4))
        chosen = (*names, "offset")
        at, found = low, []
        for batch in opened.reader.read(number, low, high, chosen):
            same("where a batch begins", batch.start, at)
            same("the columns of a batch", set(batch.table.column_names), set(chosen))
            at = batch.end
            table = batch.table
            if "timestamp" in names:
                times = page_records.milliseconds(table.column("timestamp")).tolist()
                table = table.drop_columns(["timestamp"])
            for at_row, row in enumerate(table.to_pylist()):
                if "headers" in names:
                    headers = row["headers"] or ()
                    row["headers"] = tuple((h["key"], h["value"]) for h in headers)
                if "timestamp" in names:
                    row["timestamp"] = times[at_row]
                found.append({name: row[name] for name in chosen})
        same("where the last batch ends", at, max(low, high))
        expected = [{name: getattr(r, name) for name in chosen} for r in part.records(low, high)]
        same(f"columns {chosen} of [{low}, {high})", found, expected)


# --- offsets and times ---------------------------------------------------------------------


def offsets(ask: Asked) -> None:
    """The beginning and the end, by a topic and by a consumer."""
    same("end_offsets", ask.handle.end_offsets(), _ends(ask.topic))
    same("beginning_offsets", ask.handle.beginning_offsets(), _starts(ask.topic))
    partitions = [(ask.name, p) for p in range(len(ask.topic.parts))]
    with ask.log.consumer() as consumer:
        ends = {tp.partition: end for tp, end in consumer.end_offsets(partitions).items()}
        same("a consumer's end_offsets", ends, _ends(ask.topic))
        starts = {tp.partition: at for tp, at in consumer.beginning_offsets(partitions).items()}
        same("a consumer's beginning_offsets", starts, _starts(ask.topic))


def times(ask: Asked) -> None:
    """The first offset at or after a time, by a topic and by a consumer."""
    rng = ask.rng
    all_times = [r.timestamp + d for r in ask.topic.records() for d in (0, 1)] or [0]
    asked = {p: rng.choice(rng.choice((TIMES, all_times))) for p in range(len(ask.topic.parts))}
    expected = {p: ask.topic.parts[p].at_time(at) for p, at in asked.items()}
    same(f"offsets_for_times({asked})", ask.handle.offsets_for_times(asked), expected)
    with ask.log.consumer() as consumer:
        found = consumer.offsets_for_times({(ask.name, p): at for p, at in asked.items()})
        same("a consumer's offsets_for_times", {tp.partition: o for tp, o in found.items()},
             expected)  # fmt: skip


def command_line(ask: Asked) -> None:
    """``consume`` and ``offsets``, which open the log anew."""
    rng = ask.rng
    root = ("--root", ask.world.root)
    words = ["consume", ask.name, "--from", "earliest", "--json"]
    wanted = ask.topic.records()
    if rng.random() < 0.3:
        number = rng.randrange(len(ask.topic.parts))
        words += ["--partition", str(number)]
        wanted = [r for r in wanted if r.partition == number]
    said = command(*root, *words)
    same("consume's status", (said.status, said.err), (0, ""))
    found = sorted(
        (line["partition"], line["offset"], line["timestamp"])
        for line in map(json.loads, said.lines)
    )
    same(f"{' '.join(words)}", found, [(r.partition, r.offset, r.timestamp) for r in wanted])
    lines = command(*root, "offsets", ask.name, "--time", "latest").lines
    same("offsets --time latest", sorted(lines),
         sorted(f"{ask.name}:{p}:{end}" for p, end in _ends(ask.topic).items()))  # fmt: skip


# --- the page ------------------------------------------------------------------------------


def _pages(ask: Asked, query: Query) -> list[Rec]:
    """Page after page, by the cursor."""
    opened, out = ask.log.open_topic(ask.name), list[Rec]()
    for _ in range(2000):
        page: RecordPage = read_page(opened, query, ask.log.env)
        out += map(record_of, page.records)
        more = bool(page.cursor) if query.backwards else not page.complete or bool(page.records)
        if not more:
            return out
        query = query._replace(
            offset=None, time_ms=None, cursor=page.cursor, newest_first=query.backwards
        )
    raise Difference("the pages do not end")


def _smaller_pages(ask: Asked) -> ExitStack:
    stack = ExitStack()
    for name, choices in (("SHOWN_FILES", (1, 4)), ("SEARCHED_FILES", (1, 32)),
                          ("LOCAL_READS", (0, 4096))):  # fmt: skip
        stack.enter_context(mock.patch.object(page_records, name, ask.rng.choice(choices)))
    return stack


def page(ask: Asked) -> None:
    """Records both ways, from an end, an offset or a time on, page after page."""
    rng, backwards = ask.rng, ask.rng.random() < 0.5
    parts = {p: part.records() for p, part in enumerate(ask.topic.parts)}
    chosen = sorted(rng.sample(list(parts), rng.randint(1, len(parts))))
    parts = {p: parts[p] for p in chosen}
    query = Query(tuple(chosen), newest_first=backwards, limit=rng.choice((1, 7, 50, 500)))
    dice = rng.random()
    if dice < 0.3:
        offset = rng.randint(0, max(part.end for part in ask.topic.parts) + 1)
        query = query._replace(offset=offset)
        parts = {
            p: [r for r in records if (r.offset <= offset if backwards else r.offset >= offset)]
            for p, records in parts.items()
        }
    elif dice < 0.5:
        # What the page takes as a time is 1970 or later where it is a number.
        time_ms = rng.choice(TIMES)
        query = query._replace(time_ms=time_ms)
        for p, records in parts.items():
            found = ask.topic.parts[p].at_time(time_ms)
            at = ask.topic.parts[p].end if found is None else found
            parts[p] = [r for r in records if (r.offset < at) == backwards]
    same(f"the page's records by {query}", _pages(ask, query), merged(parts, backwards))


def search(ask: Asked) -> None:
    """By key, and by what is in a record, both ways."""
    rng, backwards = ask.rng, ask.rng.random() < 0.6
    query = Query(newest_first=backwards, limit=rng.choice((1, 7, 50)))
    key, text = rng.choice(KEYS), b"%d" % rng.randrange(100)
    expected = ask.topic.records()
    if rng.random() < 0.6:
        query = query._replace(key=key)
        expected = [r for r in expected if r.key == key]
    if query.key is None or rng.random() < 0.3:
        query = query._replace(contains=text)
        expected = [r for r in expected if text in (r.key or b"") or text in (r.value or b"")]
    with _smaller_pages(ask):
        found = _by_partition(_pages(ask, query), ask.topic)
    for number, records in _by_partition(expected, ask.topic).items():
        records = records[::-1] if backwards else records
        same(f"the page's search by {query}, partition {number}", found[number], records)


def page_json(ask: Asked) -> None:
    """Records and a topic, as its script asks for them by HTTP."""
    page = Page(ask.log, Access("127.0.0.1"))
    try:
        order = ask.rng.choice(("newest", "oldest"))
        given = {"limit": "500", "order": order}
        parts = {p: part.records() for p, part in enumerate(ask.topic.parts)}
        wanted = [(r.partition, r.offset, r.timestamp) for r in merged(parts, order == "newest")]
        found, is_one = list[tuple[int, int, int]](), True
        while True:
            shown = asyncio.run(_get(page.app, f"/api/topics/{ask.name}/records", given))
            found += [(r["partition"], r["offset"], r["timestamp"]) for r in shown["records"]]
            if shown["complete"]:
                break
            # A page that took too long says so, and where to go on, partition by partition.
            given["cursor"], is_one = shown["cursor"], False
        if not is_one:
            for one in (found, wanted):
                one.sort(key=lambda r: (r[0], -r[1] if order == "newest" else r[1]))
        same(f"api/topics/{ask.name}/records, {order} first", found, wanted[: len(found)])
        if len(found) < min(500, len(wanted)):
            raise Difference(f"api/topics/{ask.name}/records: {len(found)} of {len(wanted)}")
        seen = asyncio.run(_get(page.app, f"/api/topics/{ask.name}", {}))
        _is_about("api/topics/...", seen["records"], ask.topic)
    finally:
        page.close()


async def _get(app: Any, path: str, given: dict[str, str]) -> Any:
    """What the page's application answers to a GET, without a server."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET",
        "scheme": "http", "path": path, "raw_path": path.encode(), "root_path": "",
        "query_string": urlencode(given).encode(), "headers": [(b"host", b"127.0.0.1")],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    await app(scope, receive, send)
    same(f"the status of {path}", sent[0]["status"], 200)
    return json.loads(b"".join(message.get("body", b"") for message in sent[1:]))


# --- how much there is ---------------------------------------------------------------------


def _is_about(what: str, found: int, topic: Topic) -> None:
    exact = len(topic.records())
    span = sum(part.end - part.start for part in topic.parts)
    _is_estimate(what, found, exact, span, any(part.has_gaps for part in topic.parts))


def _is_estimate(what: str, found: int | None, exact: int, span: int, has_gaps: bool) -> None:
    """A count without a read: exact where there are no gaps, and 0 only if there is nothing."""
    if not has_gaps:
        same(what, found, exact)
    elif found is None or bool(found) < bool(exact) or not 0 <= found <= span:
        raise Difference(f"{what}: {found} of {exact} records, in {span} offsets")


def described(ask: Asked) -> None:
    """Offsets and counts of partitions."""
    info = ask.handle.describe()
    same(
        "the partitions", [p.partition for p in info.partitions], list(range(len(info.partitions)))
    )
    for found, part in zip(info.partitions, ask.topic.parts, strict=True):
        same("begins", (found.beginning_offset, found.end_offset), (part.start, part.end))
        span = part.end - part.start
        _is_estimate("topics describe", found.records, len(part.live), span, part.has_gaps)


def _positions(ask: Asked) -> dict[str, dict[tuple[str, int], int]]:
    return {name: at for name, at in ask.world.groups.items() if at}


def lag(ask: Asked) -> bool:
    """``groups describe`` and ``lag()``, which are exact."""
    for name, positions in _positions(ask).items():
        now = time.time_ns() // 1_000_000
        lines = {(line.topic, line.partition): line for line in ask.log.group(name).describe()[5]}
        same(f"the partitions of {name}", sorted(lines), sorted(positions))
        for (topic, number), position in positions.items():
            part, line = ask.world.topics[topic].parts[number], lines[topic, number]
            left = part.records(position)
            same(f"{name} stands at {topic}-{number}", line.committed, position)
            same(f"the ends of {topic}-{number}", (line.start, line.end), (part.start, part.end))
            same(f"the lag of {name} in {topic}-{number} from {position}", line.records, len(left))
            age = max(now - left[0].timestamp, 0) / 1000 if left else 0.0
            if line.seconds is None or abs(line.seconds - age) > 60:
                raise Difference(f"{topic}-{number} is {line.seconds} s behind, not {age}")
            same("expired", line.expired, max(min(part.start, part.end) - position, 0))
        found = {tuple(tp): count for tp, count in ask.log.group(name).lag().items()}
        same(f"lag() of {name}", found, {
            (t, p): ask.world.topics[t].parts[p].lag(at) for (t, p), at in positions.items()
        })  # fmt: skip
        committed = {tuple(tp): at.offset for tp, at in ask.log.group(name).committed().items()}
        same(f"committed() of {name}", committed, positions)
    return bool(_positions(ask))


def _lag_is_about(what: str, found: int | None, ask: Asked, at: tuple[str, int], to: int) -> None:
    part = ask.world.topics[at[0]].parts[at[1]]
    span = max(0, part.end - max(to, part.start))
    _is_estimate(f"{what} from {to}", found, part.lag(to), span, part.has_gaps)


def overview(ask: Asked) -> None:
    """All groups and topics at one look, from which the page and the metrics are made."""
    seen = ask.log.overview()
    same("unreadable topics", dict(seen.unreadable), {})
    same("topics", [info.name for info in seen.topics], sorted(ask.world.topics))
    for info in seen.topics:
        _is_about(f"overview of {info.name}", info.records, ask.world.topics[info.name])
    groups = {group.name: group for group in seen.groups}
    for name, positions in _positions(ask).items():
        lines = {(line.topic, line.partition): line for line in groups[name].partitions}
        same(f"overview of {name}", sorted(lines), sorted(positions))
        for place, position in positions.items():
            found = lines[place].records
            _lag_is_about(f"overview: {name} in {place}", found, ask, place, position)


_SAMPLE = re.compile(r"(\w+)\{(.*)\} (\S+)")


def _scraped(ask: Asked) -> dict[str, dict[tuple[str, ...], float]]:
    samples: dict[str, dict[tuple[str, ...], float]] = {}
    for line in Metrics(ask.log).text().splitlines():
        if found := _SAMPLE.fullmatch(line):
            labels = tuple(re.findall(r'="([^"]*)"', found[2]))
            samples.setdefault(found[1], {})[labels] = float(found[3])
    return samples


def metrics(ask: Asked) -> None:
    """What Prometheus scrapes, and the number that KEDA scales by."""
    samples = _scraped(ask)
    for name, topic in ask.world.topics.items():
        for number, part in enumerate(topic.parts):
            ends = samples["kafka_topic_partition_current_offset"], part.end
            starts = samples["kafka_topic_partition_oldest_offset"], part.start
            for found, wanted in (ends, starts):
                same(f"metrics of {name}-{number}", found[name, str(number)], wanted)
    for group, positions in _positions(ask).items():
        for name in {topic for topic, _ in positions}:
            keda = 0.0
            for number, part in enumerate(ask.world.topics[name].parts):
                labels = group, name, str(number)
                stands = samples["kafka_consumergroup_current_offset"][labels]
                waits = samples["kafka_consumergroup_lag"][labels]
                at = positions.get((name, number))
                same(f"metrics: {group} in {name}-{number}", stands, -1 if at is None else at)
                if at is None:
                    same(f"metrics: lag of {group} in {name}-{number}", waits, -1)
                    continue
                _lag_is_about(f"metrics: {group}", int(waits), ask, (name, number), at)
                keda += max(waits, 0)
            left = sum(
                ask.world.topics[t].parts[p].lag(at)
                for (t, p), at in positions.items()
                if t == name
            )
            if bool(keda) < bool(left):
                raise Difference(f"KEDA sees {keda} of {left} records of {group} in {name}")


def joined(ask: Asked) -> bool:
    """Groups with members and no position, by describe, overview and metrics."""
    seen = {group.name: group for group in ask.log.overview().groups}
    samples = _scraped(ask)
    mine = {g: policy for g, (name, policy) in ask.world.joined.items() if name == ask.name}
    for group, policy in mine.items():
        name = ask.name
        for what, lines in (
            ("groups describe", ask.log.group(group).describe().partitions),
            ("overview", seen[group].partitions),
        ):
            found = {line.partition: line for line in lines if line.topic == name}
            numbers = list(range(len(ask.topic.parts)))
            same(f"{what} of {group}, which has not committed", sorted(found), numbers)
            for number, line in found.items():
                same(f"{what}: {group} stands in {name}-{number}", line.committed, None)
                if policy == "latest":
                    same(f"{what}: {group} waits in {name}-{number}", line.records, None)
                else:
                    at = ask.topic.parts[number].start
                    _lag_is_about(f"{what}: {group}", line.records, ask, (name, number), at)
                if what == "overview":
                    scraped = samples["kafka_consumergroup_current_offset"]
                    same(f"metrics: {group}", scraped.get((group, name, str(number))), -1)
                    scraped = samples["kafka_consumergroup_lag"]
                    waits = -1 if line.records is None else line.records
                    same(f"metrics: {group} waits", scraped[group, name, str(number)], waits)
    return bool(mine)


# --- tables and copies ---------------------------------------------------------------------


def _rows(path: str) -> list[Rec]:
    from deltalake import DeltaTable

    table = DeltaTable(path).to_pyarrow_table()
    stamps = table.column("timestamp").cast("int64")
    out = []
    rows = table.drop_columns(["timestamp"]).to_pylist()
    for row, micros in zip(rows, stamps.to_pylist(), strict=True):
        headers = tuple((h["key"], h["value"]) for h in row["headers"] or ())
        out.append(
            Rec(row["partition"], row["offset"], row["key"], row["value"], headers, micros // 1000)
        )
    return sorted(out, key=lambda r: r[:2])


def table(ask: Asked) -> bool:
    """The Delta table, by deltalake: what the log had when a round last came to its end."""
    if not ask.topic.has_table or ask.topic.table is None:
        return False
    info = ask.handle.table()
    if info is None:
        raise Difference("there is no table")
    rows = _by_partition(_rows(info.path), ask.topic)
    for number, records in enumerate(ask.topic.table):
        same(f"the table's rows, partition {number}", rows[number], records)
        # A tail without records need not be in the table.
        last = records[-1].offset + 1 if records else 0
        if not last <= info.end_offsets[number] <= ask.topic.parts[number].end:
            raise Difference(f"the table has partition {number} up to {info.end_offsets[number]}")
    return True


def copied(ask: Asked) -> bool:
    """The copy of a log, by a consumer."""
    if ask.world.copy is None or ask.name not in ask.world.copy:
        return False
    topic = ask.world.copy[ask.name]
    root = ask.world.folder / "copy"
    with offsetlog.open(str(root)) as log:
        same("the copy's ends", log.topic(ask.name).end_offsets(), _ends(topic))
        same("the copy's starts", log.topic(ask.name).beginning_offsets(), _starts(topic))
        expected = {p: part.records() for p, part in enumerate(topic.parts)}
        _same_records("the copy", consumed(log, ask.name, len(topic.parts)), expected)
    return True


def copied_table(ask: Asked) -> bool:
    """By deltalake: all that lives below its ends, and nothing that was never sent."""
    if ask.world.copy is None or ask.name not in ask.world.copy:
        return False
    topic = ask.world.copy[ask.name]
    with offsetlog.open(str(ask.world.folder / "copy")) as log:
        info = log.topic(ask.name).table()
    if info is None or not topic.has_table:
        return False
    rows = _by_partition(_rows(info.path), topic)
    for number, part in enumerate(topic.parts):
        end = info.end_offsets[number]
        lacks = [r for r in part.records(high=end) if r not in rows[number]]
        same(f"the copy's table lacks of partition {number}", lacks, [])
        strange = [r for r in rows[number] if part.ever.get(r.offset) != r]
        same(f"the copy's table has of its own, partition {number}", strange, [])
    is_as_then = topic.table_starts == [part.start for part in topic.parts]
    if is_as_then and topic.table == [part.records() for part in topic.parts]:
        # Nothing has changed since the source's last round, so nothing has to wait.
        for number, records in enumerate(topic.table):
            same(f"the copy's table, partition {number}", rows[number], records)
    return True


Way = Callable[[Asked], bool | None]
"""False: there was nothing to ask."""
WAYS: dict[str, Way] = {
    "poll": poll,
    "poll_arrow": poll_arrow,
    "a running consumer": running_consumer,
    "columns": columns,
    "offsets": offsets,
    "times": times,
    "command line": command_line,
    "page": page,
    "page's search": search,
    "page's JSON": page_json,
    "topics describe": described,
    "lag": lag,
    "overview": overview,
    "metrics": metrics,
    "joined groups": joined,
    "table": table,
    "copy": copied,
    "copy's table": copied_table,
}
