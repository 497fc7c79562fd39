"""Made ``e1a20b5/root``: run once, with commit e1a20b5 checked out, as
``python -m tests.golden.make_root``.

It is kept to show what is in the files. It is never run again: what another commit writes is
not what a user of that one has on disk. A later format gets files of its own beside these.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

import offsetlog
from offsetlog.format import entries
from offsetlog.log.entry import Void
from offsetlog.log.fold import step
from offsetlog.log.state import EMPTY_STATE
from tests.golden import yesterday

PLACE = Path("/tmp/offsetlog-yesterday/root")
KEPT = {"retention.ms": -1}
THEN = 1_790_000_000_000
Rows = list[dict[str, Any]]


def row(n: int, value: bytes | None = None, **more: Any) -> dict[str, Any]:
    return {"key": b"k%d" % n, "value": value or b"value %d" % n, "timestamp": THEN + n, **more}


def send(log: Any, topic: str, rows: Rows, **sender: Any) -> list[list[int]]:
    """One batch; where its records lie, as it was acknowledged."""
    with log.producer(linger_ms=20, **sender) as producer:
        futures = [producer.send(topic, **each) for each in rows]
        producer.flush()
        return [[told.partition, told.offset] for told in (f.result() for f in futures)]


def brief(given: dict[str, Any]) -> Any:
    """A value as text, or as a text and how often it is repeated."""
    text = given["value"].decode()
    return text if len(text) < 1000 else [text[0], len(text)]


def one_by_one(log: Any, topic: str, first: int, count: int, partitions: int) -> None:
    for n in range(first, first + count):
        send(log, topic, [row(n, partition=n % partitions)])


def orders(log: Any) -> None:
    """Every kind of record, inline and in segments; trims, more partitions, another config."""
    log.create_topic("orders", 3, config=KEPT)
    send(
        log,
        "orders",
        [
            row(0, partition=0),
            {"partition": 0, "key": b"k0", "value": None, "timestamp": THEN},
            {"partition": 0, "key": None, "value": b"no key", "timestamp": THEN - 5},
            {"partition": 1, "key": b"", "value": b"", "timestamp": 0},
            row(4, partition=1, headers=[("a", b"1"), ("a", b"2"), ("none", None), ("", b"")]),
            row(5, partition=2, headers=[("ünï", bytes(range(256)))]),
            row(6, partition=2, value=bytes(range(256))),
        ],
    )
    large = [row(n, bytes(range(256)) * 500 + b"%d" % n, partition=n % 3) for n in range(10, 19)]
    send(log, "orders", large)
    send(log, "orders", [row(n) for n in range(20, 50)])
    log.topic("orders").delete_records({0: 1, 1: 2})
    log.topic("orders").alter(partitions=5, config={"compression.type": "gzip"})
    send(log, "orders", [row(n) for n in range(50, 90)])
    log.maintain("orders", grace_ms=0)
    send(log, "orders", [row(n) for n in range(90, 110)])
    send(log, "orders", large)
    log.maintain("orders", grace_ms=0)
    log.topic("orders").delete_records({2: 7})
    send(log, "orders", [row(n, headers=[("h", b"%d" % n)]) for n in range(110, 120)])


def kept(log: Any) -> None:
    """Many small appends under upkeep: snapshots, leaves, stubs, rewritten segments."""
    log.create_topic("kept", 2, config=KEPT)
    one_by_one(log, "kept", 0, 90, 2)
    log.maintain("kept", grace_ms=0)
    one_by_one(log, "kept", 90, 60, 2)
    log.maintain("kept", grace_ms=0)
    # In the middle of what was rewritten.
    log.topic("kept").delete_records({0: 11, 1: 50})
    one_by_one(log, "kept", 150, 40, 2)


def plain(log: Any) -> None:
    """No upkeep at all, and a name whose folder is another one."""
    log.create_topic("Shop.Plain", 2, config=KEPT)
    one_by_one(log, "Shop.Plain", 0, 12, 2)
    send(log, "Shop.Plain", [row(n, b"x" * 100_000) for n in range(20, 26)])


def stamped(log: Any) -> None:
    log.create_topic("stamped", 1, config={**KEPT, "message.timestamp.type": "LogAppendTime"})
    send(log, "stamped", [row(n) for n in range(4)])


def keyed(log: Any) -> list[dict[str, Any]]:
    """Callers' keys: a few before and after upkeep and new partitions, and more than a snapshot
    holds itself."""
    sent = []

    def batch(topic: str, app: str, sequence: int, rows: Rows) -> None:
        placed = send(log, topic, rows, app_id=app, sequence=sequence)
        told = [{**each, "key": each["key"].decode(), "value": brief(each)} for each in rows]
        about = {"topic": topic, "app": app, "sequence": sequence}
        sent.append({**about, "rows": told, "placed": placed})

    log.create_topic("payments", 2, config=KEPT)
    log.create_topic("grown", 2, config=KEPT)
    batch("payments", "loader-a", 1, [row(n) for n in range(3)])
    batch("payments", "loader-b", 0, [row(n, partition=n % 2) for n in range(10, 15)])
    batch("payments", "loader-a", 5, [row(n) for n in range(20, 24)])
    batch("payments", "large", 7, [row(n, b"y" * 90_000) for n in range(30, 34)])
    batch("grown", "loader-a", 5, [row(n, partition=n % 2) for n in range(6)])
    log.topic("grown").alter(partitions=4)
    log.maintain("payments", grace_ms=0)
    batch("payments", "loader-c", 2, [row(n) for n in range(40, 43)])
    # Programs that had looked at a topic before others wrote: their entries land, and are void.
    with offsetlog.open(log.url) as late, offsetlog.open(log.url) as later:
        late.topic("payments"), later.topic("payments")
        rows = [row(n, partition=0) for n in range(50, 53)]
        batch("payments", "twice", 3, rows)
        assert send(late, "payments", rows, app_id="twice", sequence=3) == sent[-1]["placed"]
        log.topic("payments").alter(config={"retention.bytes": -1})
        batch("payments", "twice", 4, [row(54, partition=1)])
        rows = [row(n, partition=0) for n in range(50, 53)]
        with contextlib.suppress(offsetlog.InvalidRequestError):
            send(later, "payments", rows, app_id="twice", sequence=3)
    log.create_topic("many", 1, config=KEPT)
    for n in range(530):
        batch("many", f"job-{n}", n, [row(n)])
    log.maintain("many", grace_ms=0)
    # All of them would say the same.
    return [each for each in sent if each["topic"] != "many" or each["sequence"] % 100 == 0]


def gone(log: Any) -> dict[str, int]:
    """One that was deleted, and one that was then created again."""
    log.create_topic("gone", 2, config=KEPT)
    one_by_one(log, "gone", 0, 7, 2)
    ends = yesterday.by_text(log.topic("gone").end_offsets())
    log.delete_topic("gone")
    log.create_topic("again", 2, config=KEPT)
    one_by_one(log, "again", 0, 9, 2)
    with offsetlog.open(log.url) as late, offsetlog.open(log.url) as later:
        late.topic("again"), later.topic("again")
        log.delete_topic("again")
        with contextlib.suppress(offsetlog.UnknownTopicError):
            send(late, "again", [row(9, partition=0)])
        log.create_topic("again", 3, config=KEPT)
        with contextlib.suppress(offsetlog.UnknownTopicError):
            send(later, "again", [row(9, partition=0)])
    one_by_one(log, "again", 20, 9, 3)
    return ends


def voids(log: Any, topic: str) -> list[str]:
    """Why entries of a topic do not count, in their order."""
    state, out = EMPTY_STATE, []
    for path in sorted((PLACE / topic / "_log").rglob("*.parquet")):
        entry = entries.decode(path.read_bytes(), path.name).entry
        state, verdict = step(state, entry)
        out += [str(verdict.reason)] if isinstance(verdict, Void) else []
    return out


def main() -> None:
    shutil.rmtree(PLACE, ignore_errors=True)
    with offsetlog.open(str(PLACE)) as log:
        for make in (orders, kept, plain, stamped):
            make(log)
        sent = keyed(log)
        ends = gone(log)
    with offsetlog.open(str(PLACE)) as log:
        told = yesterday.topics(log)
        assert [report.faults for report in log.verify()] == [()] * 9
        verdicts = {name: voids(log, name) for name in ("payments", "again")}
        assert verdicts == {
            "payments": ["duplicate", "duplicate"],
            "again": ["deleted", "deleted"],
        }, verdicts
    names = [name for name, _ in yesterday.below(PLACE)]
    for part in ("orders/_index/", "orders/_snapshot/", "orders/partition=0/", "kept/_index/"):
        assert any(name.startswith(part) for name in names), part
    assert not any(name.startswith("shop_plain/_snapshot") for name in names)
    for each in sent:
        found = {(p, o): (k, t) for p, o, k, _, _, t, _ in told[each["topic"]]["records"]}
        for one, (partition, offset) in zip(each["rows"], each["placed"], strict=True):
            assert found[partition, offset] == (one["key"], one["timestamp"])
    means = {"topics": told, "keyed": sent, "gone": ends}
    yesterday.pack("root", yesterday.below(PLACE), means)


if __name__ == "__main__":
    main()
