"""One right call of each public function, of which single arguments can be replaced."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import offsetlog
from offsetlog.core.group.reset import ToEarliest
from offsetlog.engine.append.send_buffer import ArrowFuture, SendFuture
from offsetlog.errors import UnknownTopicError

HUGE = 10**5000


class Liar:
    """An object whose every method fails with an error of its own."""

    def __repr__(self) -> str:
        raise OverflowError("no words")

    __str__ = __iter__ = __index__ = __float__ = __len__ = __fspath__ = __repr__  # type: ignore[assignment]
    __hash__ = object.__hash__


ODD: list[Callable[[], Any]] = [
    lambda value=value: value
    for value in (
        None, True, False, 0, 1, -1, 17.9, 2**31, 2**63 - 1, 2**63, -(2**63), HUGE, float("nan"),
        float("inf"), float("-inf"), 1j, decimal.Decimal("1.5"), "", "t", "x", "\0", "\ud800",
        "a\x1b[2J\nb", "../../x", "x" * 100_000, "9" * 5000, b"", b"t", bytearray(b"x"),
        memoryview(b"x"), object(), Liar(), Liar, print, len, [], [1], ["t"], [("t", 0)], [Liar()],
        [HUGE], ["\ud800"], (), (1,), ("t", 0), ("t", -1), ("t", 2**40), ("t", HUGE), ("t", "0"),
        ("none", 0), ("t", 0, 0), {}, {"a": 1}, {0: 0}, {0: "x"}, {0: HUGE}, {("t", 0): 0},
        {("t", 0): (0, "\ud800")}, {("t", 0): ("x", 5)}, {"retention.ms": 1.5},
        {"retention.ms": HUGE}, {"retention.ms": "9" * 5000}, {"\ud800": "x"}, {5: 5}, set(), {1},
        frozenset({"t"}), range(3), dt.datetime(2026, 1, 1), dt.datetime.max, dt.timedelta.max,
        dt.timedelta(seconds=-1), dt.date(2026, 1, 1), Path("/"), Path("/nowhere/x"), np.int64(5),
        np.float64("nan"), np.array([1]), np.array([]), np.str_("t"), np.bool_(True),
        np.datetime64("2026-01-01"), pa.table({"value": [b"x"]}), pa.table({"value": ["x"]}),
        pa.table({"x": [1]}), pa.table({"value": pa.array([], pa.binary())}), pa.array([b"x"]),
        pa.table({"value": [b"x"], "timestamp": pa.array([2**62], pa.timestamp("s"))}),
        pa.table({"value": [b"x"], "partition": [9]}), type, NotImplemented, ...,
    )
] + [
    lambda: itertools.count(),
    lambda: iter(["t"]),
    lambda: (1 / 0 for _ in range(1)),
]  # fmt: skip


def quick(monkeypatch: Any) -> None:
    """Nothing is walked for so long."""
    monkeypatch.setattr("offsetlog.arguments.MAX_ITEMS", 1000)


def _open(calls: Calls) -> Any:
    return offsetlog.open


def _log(calls: Calls) -> Any:
    return calls.log


def _topic(calls: Calls) -> Any:
    return calls.log.topic("t")


def _group(calls: Calls) -> Any:
    return calls.log.group("g")


def _sent(calls: Calls) -> Any:
    return calls.sent


def _arrow(calls: Calls) -> Any:
    return calls.arrow


def _consumer(calls: Calls) -> Any:
    return calls.consumer


def _another(calls: Calls) -> Any:
    return calls.log.consumer()


class Calls:
    """A log with a topic, a group, and all that a program holds of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> Calls:
        self.root = str(self.folder / "log")
        self.log = offsetlog.open(self.root)
        self.log.create_topic("t", partitions=2)
        self.producer = self.log.producer()
        self.sent = self.producer.send("t", b"first", partition=0)
        self.sent.result()
        self.arrow = self.producer.send_arrow("t", pa.table({"value": [b"second"]}))
        self.arrow.result()
        with self.log.producer(app_id="app", sequence=1) as keyed:
            keyed.send("t", b"third", partition=1)
        self.consumer = self.log.consumer("g", ["t"], auto_offset_reset="earliest")
        self.consumer.poll()
        self.consumer.commit()
        self.consumer.close()
        self.consumer = self.log.consumer("g", auto_offset_reset="earliest")
        self.consumer.assign([("t", 0), ("t", 1)])
        self.plan = self.log.group("g").reset("t", to="earliest")
        self.csv = self.folder / "positions.csv"
        self.csv.write_text("t,0,0\n")
        return self

    def __exit__(self, *error: object) -> None:
        self.log.close()

    def stored(self) -> int:
        """How much has happened to the topic and the groups."""
        with suppress(UnknownTopicError):
            entries = self.log.topic("t").describe().entries
            return entries + self.log.offsets_table.look().version
        return -1

    def call(self, name: str, /, **arguments: Any) -> Any:
        """The call with these in place of its own arguments."""
        holder, right = self.NAMES[name]
        given = {**right, **arguments}
        self.consumer.seek_to_beginning()  # So that no poll waits.
        thing = holder(self)
        function = thing if holder is _open else getattr(thing, name.partition(".")[2])
        rest = self.VAR.get(name, "")
        places = [given.pop(rest)] if rest in given else []
        if rest and "time_ms" in given:
            places.insert(0, given.pop("time_ms"))
        result = function(*places, **given)
        if isinstance(result, SendFuture | ArrowFuture):
            result.exception(20)
        if isinstance(result, Future):
            result.result(20)
        if hasattr(result, "close"):
            result.close()
        return result

    NAMES: dict[str, tuple[Callable[[Calls], Any], dict[str, Any]]] = {
        "open": (_open, {"url": "log"}),
        "Log.create_topic": (_log, {"name": "new"}),
        "Log.delete_topic": (_log, {"name": "t"}),
        "Log.purge_plan": (_log, {"name": "t"}),
        "Log.topic": (_log, {"name": "t"}),
        "Log.producer": (_log, {}),
        "Log.consumer": (_log, {"group": "g"}),
        "Log.copy": (_log, {"to": "copied"}),
        "Log.group": (_log, {"name": "g"}),
        "Log.maintain": (_log, {}),
        "Log.verify": (_log, {}),
        "Topic.offsets_for_times": (_topic, {"times": {0: 0}}),
        "Topic.alter": (_topic, {}),
        "Topic.delete_records": (_topic, {"before": {0: 0}}),
        "Topic.removal": (_topic, {"before": {0: 0}}),
        "Topic.erase": (_topic, {"keys": [b"nobody"]}),
        "Topic.forget_app_ids": (_topic, {"app_ids": "app"}),
        "Group.reset": (_group, {"topic": "t", "to": "earliest"}),
        "Group.reset_topics": (_group, {"scenario": ToEarliest(), "topics": [("t", None)]}),
        "Group.delete_offsets": (_group, {"topic": "t"}),
        "Group.remove_members": (_group, {}),
        "ResetPlan.to_csv": (lambda calls: calls.plan, {}),
        "Producer.send": (lambda calls: calls.producer, {"topic": "t", "value": b"v"}),
        "Producer.send_arrow": (
            lambda calls: calls.producer, {"topic": "t", "table": pa.table({"value": [b"v"]})},
        ),
        "Producer.flush": (lambda calls: calls.producer, {}),
        "SendFuture.result": (_sent, {}),
        "SendFuture.exception": (_sent, {}),
        "SendFuture.add_done_callback": (_sent, {"callback": str}),
        "ArrowFuture.result": (_arrow, {}),
        "ArrowFuture.metadata": (_arrow, {"index": 0}),
        "ArrowFuture.exception": (_arrow, {}),
        "ArrowFuture.add_done_callback": (_arrow, {"callback": str}),
        "Consumer.subscribe": (_another, {"topics": ["t"]}),
        "Consumer.assign": (_another, {"partitions": [("t", 0)]}),
        "Consumer.pause": (_consumer, {}),
        "Consumer.resume": (_consumer, {}),
        "Consumer.seek": (_consumer, {"partition": ("t", 0), "offset": 0}),
        "Consumer.seek_to_beginning": (_consumer, {}),
        "Consumer.seek_to_end": (_consumer, {}),
        "Consumer.seek_to_time": (_consumer, {"time_ms": 0}),
        "Consumer.position": (_consumer, {"partition": ("t", 0)}),
        "Consumer.beginning_offsets": (_consumer, {"partitions": [("t", 0)]}),
        "Consumer.end_offsets": (_consumer, {"partitions": [("t", 0)]}),
        "Consumer.offsets_for_times": (_consumer, {"times": {("t", 0): 0}}),
        "Consumer.commit": (_consumer, {}),
        "Consumer.commit_async": (_consumer, {}),
        "Consumer.committed": (_consumer, {}),
        "Consumer.followed_reset": (_consumer, {"partition": ("t", 0)}),
        "Consumer.poll": (_consumer, {}),
        "Consumer.poll_arrow": (_consumer, {}),
        "Consumer.close": (_another, {}),
    }  # fmt: skip
    """Of each function: whose it is, and the arguments of a right call."""
    VAR = {
        "Topic.forget_app_ids": "app_ids", "Group.remove_members": "names",
        "Consumer.pause": "partitions", "Consumer.resume": "partitions",
        "Consumer.seek_to_beginning": "partitions", "Consumer.seek_to_end": "partitions",
        "Consumer.seek_to_time": "partitions",
        "Consumer.committed": "partitions",
    }  # fmt: skip
    """Functions of ``*args``: its name."""
