"""``--json``: every command, at every place, one document or one object a line."""

from __future__ import annotations

import base64
import json

import pytest

import offsetlog as library
from tests.cli.shell import offsetlog

COMMANDS = [
    ["topics", "list"],
    ["topics", "describe", "orders"],
    ["topics", "create", "more"],
    ["topics", "alter", "orders", "--partitions", "4"],
    ["topics", "delete", "orders"],
    ["produce", "orders"],
    ["offsets", "orders"],
    ["records", "delete", "orders", "--before", "0:1"],
    ["maintain"],
    ["verify"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("at", [0, 1, -1])
def test_one_document_wherever_the_option_stands(words, at, orders):
    place = len(words) if at == -1 else at
    result = offsetlog(*words[:place], "--json", *words[place:])
    assert result.status == 0 and json.loads(result.out)
    # What goes is said, wherever it is read.
    assert result.err.count("\n") == ("delete" in words)


def _rows(text):
    """A printed table as lists of cells."""
    return [line.split() for line in text.splitlines()]


def test_tables_say_the_same_as_json(orders):
    told = json.loads(offsetlog("topics", "list", "--json").out)
    assert _rows(offsetlog("topics", "list").text)[1:] == [
        [str(cell) for cell in one.values()] for one in told
    ]
    [told] = json.loads(offsetlog("topics", "describe", "orders", "--json").out)
    shown = _rows(offsetlog("topics", "describe", "orders").text)[3:]
    assert shown == [
        [str(p[k]) for k in ("partition", "beginning_offset", "end_offset")]
        + [str(p["end_offset"] - p["beginning_offset"]), str(p["bytes"])]
        for p in told["partitions"]
    ]
    assert [row[3] for row in shown] == ["2", "2", "2"]
    [told] = json.loads(offsetlog("verify", "orders", "--json").out)
    row = _rows(offsetlog("verify", "orders").text)[1]
    assert row[:5] == [str(told[k]) for k in ("topic", "entries", "records", "files", "bytes")]
    told = json.loads(offsetlog("offsets", "orders", "--json").out)
    assert offsetlog("offsets", "orders").lines == [
        f"{one['topic']}:{one['partition']}:{one['offset']}" for one in told
    ]


def test_consumed_objects_hold_the_whole_record(place):
    with library.open(str(place / "log")) as log:
        log.create_topic("t")
        with log.producer() as producer:
            producer.send("t", b"\xff\x00", b"\xc3\xa9", [("h", b"\xfe"), ("n", None)], None, 5)
            producer.send("t", None, b"line\nbreak", None, None, 6)
    lines = offsetlog("consume", "t", "--json").lines
    first, second = map(json.loads, lines)
    assert first == {
        "partition": 0, "offset": 0, "timestamp": 5, "key": "é", "value": None,
        "value_base64": base64.b64encode(b"\xff\x00").decode(),
        "headers": [
            {"key": "h", "value": None, "value_base64": "/g=="}, {"key": "n", "value": None}
        ],
    }  # fmt: skip
    assert second == {
        "partition": 0, "offset": 1, "timestamp": 6, "key": "line\nbreak", "value": None,
        "headers": [],
    }  # fmt: skip


def test_acks_are_objects_in_the_order_of_the_lines(orders):
    lines = b"".join(b"k%d:v%d\n" % (n % 7, n) for n in range(500))
    words = ("produce", "orders", "--key-separator", ":", "--acks", "--json")
    acks = [json.loads(line) for line in offsetlog(*words, stdin=lines).lines]
    stored = {
        (one["partition"], one["offset"]): one["value"]
        for one in map(json.loads, offsetlog("consume", "orders", "--json").lines)
    }
    assert [stored[ack["partition"], ack["offset"]] for ack in acks] == [
        f"v{n}" for n in range(500)
    ]


def test_verify_says_its_faults_in_json_too(orders):
    entry = next((orders / "log" / "orders" / "_log").rglob("*1.parquet"))
    data = bytearray(entry.read_bytes())
    data[len(data) // 2] ^= 1
    entry.write_bytes(data)
    result = offsetlog("verify", "orders", "--json")
    [told] = json.loads(result.out)
    assert result.status == 1 and not told["sound"]
    assert entry.name in told["faults"][0]
