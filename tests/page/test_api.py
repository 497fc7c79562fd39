"""The page's JSON, as a program gets it from a real server."""

from __future__ import annotations

import http.client
import json
import re
import socket
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import offsetlog
from offsetlog import redact
from offsetlog.core.group.lag import Lag
from offsetlog.errors import InvalidRequestError, OffsetLogError, StorageError
from offsetlog.metrics import exposition
from offsetlog.page import app, records, requests, resets
from offsetlog.page import server as page_server
from offsetlog.page.server import PageServer, check_allowed_host, check_base_path
from offsetlog.values import MAX_PARTITIONS
from tests.cli.shell import offsetlog as run
from tests.page.conftest import HOSTILE, fill
from tests.page.server import Client, token_of
from tests.pages import ROOT, blocks, moved
from tests.pages import run as run_program
from tests.waiting import until

pytestmark = pytest.mark.root_in("memory")

STATIC = Path(offsetlog.__file__).parent / "page" / "static"


@pytest.fixture(scope="module")
def wild(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    """A server for requests that change nothing, of many tests: it allows changes."""
    with offsetlog.open(f"memory://{tmp_path_factory.mktemp('wild').name}") as log:
        fill(log)
        with PageServer(log, port=0, allow_changes=True) as server:
            yield server


@pytest.fixture
def anybody(wild: PageServer) -> Client:
    return Client(wild)


@pytest.fixture
def somebody(wild: PageServer) -> Client:
    """With the token."""
    return Client(wild, authorization=f"Bearer {token_of(wild)}")


# --- what is there -----------------------------------------------------------------------------


def test_fields_are_those_of_the_command_line(tmp_path, monkeypatch) -> None:
    """What ``--json`` prints is in each document, under the same names and with the same values."""
    root = str(tmp_path / "log")
    monkeypatch.setenv("OFFSETLOG_ROOT", root)

    def printed(*words):
        return json.loads(run(*words, "--json").out)

    def holds(document, part):
        if isinstance(part, dict):
            return all(name in document and holds(document[name], part[name]) for name in part)
        if isinstance(part, list):
            return len(document) == len(part) and all(map(holds, document, part))
        return document == part

    with offsetlog.open(root) as log:
        fill(log)
        with PageServer(log, port=0) as server:
            client = Client(server)
            assert holds(client.get("/api/topics").json, printed("topics", "list"))
            assert holds(
                client.get("/api/topics/orders").json, printed("topics", "describe", "orders")[0]
            )
            assert holds(client.get("/api/groups").json, printed("groups", "list"))
            shown = printed("groups", "describe", "billing")
            for lines in (shown["partitions"], [shown["total"]]):
                for line in lines:
                    del line["seconds"]  # They pass.
            assert holds(client.get("/api/groups/billing").json, shown)
            out = run("consume", "hostile", "--json").out
            lines = [json.loads(line) for line in out.splitlines()]
            got = client.get("/api/topics/hostile/records", order="oldest").json["records"]
            assert len(lines) == 4 and holds(got, lines)
            words = ("groups", "reset", "billing", "--topic", "orders", "--to-earliest")
            dry = client.post("/api/groups/billing/reset", {"topic": "orders", "to": "earliest"})
            assert holds(dry.json, printed(*words))


def test_a_group_without_a_commit_is_not_green(log, client: Client) -> None:
    """In the list, in its own view, and beside its topic."""
    with (
        log.consumer(group="new", topics=["orders"], auto_offset_reset="earliest") as one,
        log.consumer(group="tail", topics=["orders"]),
    ):
        one.poll()
        groups = {group["name"]: group for group in client.get("/api/groups").json}
        new, tail = groups["new"], groups["tail"]
        assert (new["records"], new["uncommitted"], new["partitions"]) == (90, 3, 3)
        assert new["bytes"] > 0 and new["seconds"] > 0 and new["topics"] == ["orders"]
        assert [tail[name] for name in ("records", "bytes", "seconds")] == [None] * 3
        assert (tail["uncommitted"], tail["topics"]) == (3, ["orders"])
        lines = client.get("/api/groups/new").json["partitions"]
        assert [(line["committed"], line["end"], line["records"]) for line in lines] == [
            (None, 30, 30)
        ] * 3
        shown = client.get("/api/groups/tail").json
        assert shown["total"] == {"records": None, "bytes": None, "seconds": None}
        assert {line["records"] for line in shown["partitions"]} == {None}
        beside = {one["group"]: one for one in client.get("/api/topics/orders").json["groups"]}
        assert (beside["new"]["records"], beside["new"]["uncommitted"]) == (90, 3)
        assert (beside["tail"]["records"], beside["tail"]["uncommitted"]) == (None, 3)
        scraped = client.get("/metrics").data.decode()
        labels = 'consumergroup="new",topic="orders",partition="0"'
        assert f"kafka_consumergroup_current_offset{{{labels}}} -1" in scraped
        assert f"kafka_consumergroup_lag{{{labels}}} 30" in scraped


def test_state(client: Client, admin: Client) -> None:
    state = client.get("/api/state").json
    assert state["version"] == offsetlog.__version__ and state["pause_ms"] > 0
    assert (state["allow_changes"], state["has_token"]) == (False, False)
    assert client.get("/api/state").headers["cache-control"] == "no-store"
    state = admin.get("/api/state").json
    assert (state["allow_changes"], state["has_token"]) == (True, True)


def test_topics_have_their_groups_and_rates(log, client: Client, monkeypatch) -> None:
    [hostile, orders] = client.get("/api/topics").json
    assert orders["groups"] == [
        {"group": "billing", "state": "Empty", "uncommitted": 0, "records": 50}
    ]
    assert orders["records_per_second"] is None and hostile["groups"] == []
    with log.producer() as producer:
        producer.send("orders", b"x")
    time.sleep(1.1)
    orders = client.get("/api/topics").json[1]
    assert orders["records"] == 91 and 0 < orders["records_per_second"] <= 1


def test_a_page_learns_when_to_look_again(server: PageServer, monkeypatch) -> None:
    """Of a log whose looks take long it would ask for the same one again and again."""
    looks = server.page.looks
    monkeypatch.setattr(looks, "_pause_after", lambda seconds: 37.5)
    looks.expire()
    for path in ("/api/topics", "/api/groups", "/api/changes"):
        headers = Client(server).get(path).headers
        assert headers["x-offsetlog-pause"] == "37500" and int(headers["x-offsetlog-at"]) > 10**12


def test_a_record_by_each_parameter(anybody: Client) -> None:
    def offsets(**parameters):
        got = anybody.get("/api/topics/orders/records", **parameters)
        assert got.status == 200, got.data
        return [(r["partition"], r["offset"]) for r in got.json["records"]]

    assert offsets(limit=2) == [(2, 29), (1, 29)]
    assert offsets(partition=0, offset=5, limit=2) == [(0, 5), (0, 6)]
    assert offsets(partition="0,1", offset=5, limit=2, order="newest") == [(1, 5), (0, 5)]
    assert offsets(timestamp=1_760_000_000_000 + 4000, limit=2) == [(1, 1), (2, 1)]
    assert offsets(timestamp="2025-10-09T08:53:24Z", limit=1) == [(1, 1)]
    assert offsets(key="customer-0", limit=2) == [(1, 29), (0, 28)]
    key = b64encode(b"customer-0").decode()
    assert offsets(key_base64=key, limit=1, order="oldest") == [(0, 0)]
    assert offsets(contains='"order": 17,') == [(2, 5)]
    page = anybody.get("/api/topics/orders/records", limit=4).json
    assert page["cursor"] == "0:29,1:29,2:28" and page["ends"] == "0:30,1:30,2:30"
    assert offsets(cursor=page["cursor"], order="newest", limit=2) == [(1, 28), (0, 28)]


def test_records_are_waited_for(log, client: Client) -> None:
    ends = client.get("/api/topics/orders/records").json["ends"]
    began = time.monotonic()

    def send() -> None:
        time.sleep(0.4)
        with log.producer() as producer:
            producer.send("orders", b"new", partition=0)

    thread = threading.Thread(target=send)
    thread.start()
    page = client.get("/api/topics/orders/records", cursor=ends, order="oldest", wait=15).json
    thread.join()
    assert [r["value"] for r in page["records"]] == ["new"]
    assert 0.3 < time.monotonic() - began < 10 and page["cursor"] == "0:31,1:30,2:30"


def test_a_wait_ends_and_only_so_many_wait(anybody: Client, monkeypatch) -> None:
    ends = anybody.get("/api/topics/orders/records").json["ends"]
    for waiting, wait, least, most in ((app.MAX_WAITING, 1, 0.9, 30), (0, 15, 0.0, 12)):
        monkeypatch.setattr(app, "MAX_WAITING", waiting)
        began = time.monotonic()
        page = anybody.get(
            "/api/topics/orders/records", cursor=ends, order="oldest", wait=wait
        ).json
        assert page["records"] == [] and least <= time.monotonic() - began < most


def test_a_long_value_is_cut_and_shown_whole_alone(log, client: Client) -> None:
    with log.producer() as producer:
        producer.send("hostile", b"v" * 100_000)
    path = "/api/topics/hostile/records"
    [record] = client.get(path, limit=1).json["records"]
    assert (len(record["value"]), record["value_bytes"], record["value_is_cut"]) == (
        16384, 100_000, True,
    )  # fmt: skip
    [record] = client.get(path, partition=0, offset=4, limit=1, whole="true").json["records"]
    assert len(record["value"]) == 100_000 and not record["value_is_cut"]


def test_the_chain_and_the_files(log, client: Client) -> None:
    log.topic("orders").delete_records({0: 3})
    log.topic("orders").alter(partitions=4)
    got = client.get("/api/topics/orders/entries").json
    kinds = [entry["kind"] for entry in got["entries"]]
    appends = [entry for entry in got["entries"] if entry["kind"] == "append"]
    # On a busy machine the producer needs more than one.
    assert kinds == ["configure", "trim", *["append"] * len(appends), "create"]
    assert got["before"] is None and got["entries"][1]["starts"] == {"0": 3}
    assert sum(entry["records"] for entry in appends) == 90 and appends[0]["time"] > 10**12
    first = client.get("/api/topics/orders/entries", limit=1).json
    assert (
        client.get("/api/topics/orders/entries", before=first["before"]).json["entries"]
        == (got["entries"][1:])
    )
    files = client.get("/api/topics/orders/files", partition=1).json
    assert files["partition"] == 1 and files["before"] is None
    assert sum(file["records"] for file in files["files"]) == 30
    assert files["files"][0]["file"] in {entry["file"] for entry in appends}


def test_large_entries_are_shown_some_at_a_time(log, client: Client, monkeypatch) -> None:
    with log.producer() as producer:
        for _ in range(40):
            producer.send("hostile", b"x").result()
    monkeypatch.setattr(app.chain_view, "MAX_BYTES", 1)
    path, seen, before = "/api/topics/hostile/entries", [], {}
    while True:
        got = client.get(path, limit=100, **before).json
        seen += [entry["entry"] for entry in got["entries"]]
        assert len(got["entries"]) <= 16
        if got["before"] is None:
            break
        before = {"before": got["before"]}
    assert seen == list(range(got["tip"]))[::-1] and len(seen) > 40


def test_what_changed_is_noticed(log, client: Client) -> None:
    assert client.get("/api/changes").json == []
    log.create_topic("new")
    log.topic("orders").alter(partitions=5, config={"retention.ms": 3_600_000})
    log.topic("orders").delete_records({0: 3})
    log.group("billing").reset("orders", to="earliest", dry_run=False)
    log.group("extra").reset("orders", to="latest", dry_run=False)
    log.delete_topic("hostile")
    time.sleep(1.1)
    changes = {(c["kind"], c["name"], c["text"]) for c in client.get("/api/changes").json}
    assert changes == {
        ("topic", "new", "created, with 1 partition"),
        ("topic", "orders", "3 partitions became 5"),
        ("topic", "orders", "retention.ms: -1 became 3600000"),
        ("topic", "orders", "3 records left the log at its beginning"),
        ("topic", "hostile", "deleted"),
        ("group", "billing", "reset (number 1)"),
        ("group", "extra", "created"),
    }
    log.group("extra").delete()
    time.sleep(1.1)
    newest = client.get("/api/changes").json[0]
    assert (newest["name"], newest["text"], newest["by_page"]) == ("extra", "deleted", False)


# --- resets ------------------------------------------------------------------------------------

WAYS = [
    ({"to": "earliest"}, [0, 0, 0]),
    ({"to": "latest"}, [30, 30, 30]),
    ({"to": "current"}, [10, 30, 0]),
    ({"to": 7}, [7, 7, 7]),
    ({"shift_by": -5}, [5, 25, 0]),
    ({"to_datetime": "2025-10-09T08:53:24Z"}, [2, 1, 1]),
    ({"by_duration": "PT1S"}, [30, 30, 30]),
    ({"positions": {"0": 1, "1": 2, "2": 3}}, [1, 2, 3]),
    ({"from_file": "orders,0,4\norders,1,5\norders,2,6\n"}, [4, 5, 6]),
]


@pytest.mark.parametrize(("way", "after"), WAYS)
def test_each_way_of_a_reset(log, admin: Client, way, after) -> None:
    order = {"topic": "orders", **way}
    dry = admin.post("/api/groups/billing/reset", order)
    assert dry.status == 200, dry.data
    assert [m["after"] for m in dry.json["partitions"]] == after
    assert [m["before"] for m in dry.json["partitions"]] == [10, 30, 0]
    assert not dry.json["executed"]
    committed = [c.offset for _, c in sorted(log.group("billing").committed().items())]
    assert committed == [10, 30, 0]
    done = admin.post("/api/groups/billing/reset", {**order, "dry_run": False})
    assert done.status == 200 and done.json["executed"]
    committed = [c.offset for _, c in sorted(log.group("billing").committed().items())]
    assert committed == after
    newest = admin.get("/api/changes").json[0]
    assert newest["by_page"] and newest["text"].startswith("reset ")


def test_what_is_outside_is_clamped_with_a_warning(anybody: Client) -> None:
    order = {"topic": "orders", "partitions": [1], "to": 99}
    plan = anybody.post("/api/groups/billing/reset", order).json
    [move] = plan["partitions"]
    assert move["after"] == 30 and "past the latest" in plan["warnings"][0]
    assert (move["start"], move["end"]) == (0, 30)


def test_all_topics_of_a_group(anybody: Client) -> None:
    plan = anybody.post("/api/groups/billing/reset", {"to": "latest"}).json
    assert [m["after"] for m in plan["partitions"]] == [30, 30, 30]


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ({}, "Where to"), ({"to": "earliest", "shift_by": 1}, "one way"),
        ({"to": "middle"}, "earliest"), ({"to": True}, "earliest"), ({"to": 1.5}, "earliest"),
        ({"shift_by": "1"}, "whole number"), ({"shift_by": 10**400}, "shift"),
        ({"to_datetime": "yesterday"}, "date and time"), ({"to_datetime": 5}, "text"),
        ({"by_duration": "1 day"}, "duration"), ({"by_duration": "-PT1S"}, "negative"),
        ({"positions": {"a": 1}}, "number"), ({"positions": {"0": -1}}, "whole numbers"),
        ({"positions": {}}, "by partition"), ({"positions": [1]}, "by partition"),
        ({"from_file": "a,b\n"}, "Line 1"), ({"from_file": "x,0,1\n"}, "no line"),
        ({"to": "latest", "partitions": []}, "list"), ({"to": "latest", "partitions": [9]}, "9"),
        ({"to": "latest", "partitions": ["0"]}, "whole numbers"),
        ({"to": "latest", "dry_run": "false"}, "true or false"),
        ({"to": "latest", "topics": "orders"}, "topic"), ({"to": "latest", "topic": 5}, "topic"),
        ({"to": "latest", "topic": "../x"}, "legal"),
    ],
)  # fmt: skip
def test_a_wrong_reset_is_refused(somebody: Client, order, words) -> None:
    got = somebody.post("/api/groups/billing/reset", {"topic": "orders", **order})
    assert got.status in (400, 404), got.data
    assert words in got.error and "\n" not in got.error and "Traceback" not in got.error


def test_positions_need_a_topic(anybody: Client) -> None:
    for order in ({"positions": {"0": 1}}, {"to": "latest", "partitions": [0]}):
        got = anybody.post("/api/groups/billing/reset", order)
        assert got.status == 400 and "topic" in got.error


# --- upkeep ------------------------------------------------------------------------------------


def ended(client: Client, number: int) -> dict:
    for _ in range(200):
        [job] = [j for j in client.get("/api/jobs").json if j["job"] == number]
        if job["state"] != "running":
            return job
        time.sleep(0.05)
    raise AssertionError("it does not end")


def test_verification_and_upkeep(client: Client, admin: Client) -> None:
    assert client.get("/api/jobs").json == []
    got = client.post("/api/jobs", {"kind": "verify"})
    assert got.status == 202 and got.json["state"] in ("running", "done")
    job = ended(client, got.json["job"])
    assert job["state"] == "done" and job["error"] is None
    assert {report["topic"] for report in job["result"]} >= {"orders", "hostile"}
    assert all(report["sound"] for report in job["result"])
    got = admin.post("/api/jobs", {"kind": "maintain", "topic": "orders"})
    job = ended(admin, got.json["job"])
    assert job["state"] == "done" and job["result"][0]["topic"] == "orders"
    assert admin.get("/api/changes").json[0]["text"] == "upkeep: done"


def test_a_verification_needs_the_token_where_there_is_one(changing, admin: Client) -> None:
    """It reads all that is stored: not for anybody on this machine, if somebody has a token."""
    anybody = Client(changing)
    assert not anybody.get("/api/state").json["may_verify"]
    got = anybody.post("/api/jobs", {"kind": "verify"})
    assert got.status == 401 and "token" in got.error and not admin.get("/api/jobs").json
    assert admin.get("/api/state").json["may_verify"]
    number = admin.post("/api/jobs", {"kind": "verify"}).json["job"]
    assert anybody.post(f"/api/jobs/{number}/end", {}).status == 401
    assert ended(admin, number)["state"] == "done"


def test_one_job_at_a_time_and_it_can_be_ended(log, client: Client, monkeypatch) -> None:
    steps = threading.Event()

    def slow(topic=None, *, progress):
        for n in range(1000):
            progress("orders", n, 1000)
            steps.set()
            time.sleep(0.01)

    monkeypatch.setattr(log, "verify", slow)
    number = client.post("/api/jobs", {"kind": "verify"}).json["job"]
    assert steps.wait(60)
    again = client.post("/api/jobs", {"kind": "verify"})
    assert again.status == 409 and "running already" in again.error
    [job] = client.get("/api/jobs").json
    assert job["step"] == "orders" and job["total"] == 1000
    assert client.post(f"/api/jobs/{number}/end", {}).status == 200
    assert ended(client, number)["state"] == "ended"


def test_a_job_that_fails_says_why(log, client: Client, monkeypatch) -> None:
    errors = [StorageError("The disk is gone."), KeyError("x" * 5000)]

    def fail(topic=None, *, progress):
        raise errors.pop(0)

    monkeypatch.setattr(log, "verify", fail)
    job = ended(client, client.post("/api/jobs", {"kind": "verify"}).json["job"])
    assert (job["state"], job["error"]) == ("failed", "The disk is gone.")
    job = ended(client, client.post("/api/jobs", {"kind": "verify"}).json["job"])
    assert job["error"] == "An unexpected error: KeyError. The program's log says more."


def test_the_end_of_the_page_ends_its_job(log, monkeypatch) -> None:
    running = threading.Event()

    def slow(topic=None, *, progress):
        while True:
            progress("orders", 1, 2)
            running.set()
            time.sleep(0.01)

    monkeypatch.setattr(log, "verify", slow)
    with PageServer(log, port=0) as server:
        Client(server).post("/api/jobs", {"kind": "verify"})
        assert running.wait(60)
    assert server.page.jobs.newest_first()[0].state == "ended"


# --- what is wrong with a request --------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/api/topics/gone", 404, "no topic"),
        ("/api/topics/gone/records", 404, "no topic"),
        ("/api/topics/gone/entries", 404, "no topic"),
        ("/api/topics/..%2f..%2fetc", 404, "nothing"),
        ("/api/topics/__consumer_offsets", 400, "begins with"),
        ("/api/topics/%00", 400, "legal"),
        ("/api/topics/a%0ab", 400, "legal"),
        ("/api/groups/gone", 404, "no group"),
        ("/api/groups/%3Cscript%3E", 400, "legal"),
        ("/api/nothing", 404, "nothing"),
        ("/static/../app.py", 404, "nothing"),
        ("/app.py", 404, "nothing"),
        ("//evil.example/", 404, "nothing"),
    ],
)
def test_what_is_not_there(anybody: Client, path, status, words) -> None:
    got = anybody.ask("GET", path)
    assert (got.status, words in got.error) == (status, True), got.data
    assert "Traceback" not in got.error and "\n" not in got.error


@pytest.mark.parametrize(
    "query",
    [
        "limit=0", "limit=501", "limit=-1", "limit=x", "limit=1e3", "limit=%D9%A1", "offset=-1",
        "offset=9223372036854775808", "offset=1&timestamp=2", "timestamp=tomorrow", "order=up",
        "cursor=0", "cursor=0:1,0:2", "cursor=a:1", "cursor=0:1&offset=2", "key=a&key_base64=YQ==",
        "key_base64=*", "wait=21&order=oldest", "wait=1", "whole=true", "whole=maybe", "nothing=1",
        "limit=1&limit=2", "partition=9", "partition=x", "timestamp=99999999999999999999",
    ],
)  # fmt: skip
def test_wrong_parameters(anybody: Client, query) -> None:
    got = anybody.ask("GET", f"/api/topics/orders/records?{query}")
    assert got.status in (400, 404), got.data
    assert "\n" not in got.error and "Traceback" not in got.error and len(got.error) < 400


def test_wrong_bodies(anybody: Client, somebody: Client, monkeypatch) -> None:
    path, kind = "/api/groups/billing/reset", {"content-type": "application/json"}
    for data in (
        b"",
        b"[]",
        b"{",
        b"nul",
        b'{"to": NaN}',
        b'{"a": 1, "a": 2}',
        b"\xff",
        b"[" * 9999,
    ):
        got = anybody.ask("POST", path, data, kind)
        assert got.status == 400 and "\n" not in got.error, got.data
    assert anybody.ask("POST", path, b"{}", {"content-type": "text/plain"}).status == 415
    assert anybody.ask("POST", path, b"{}").status == 415
    monkeypatch.setattr(requests, "MAX_BODY_BYTES", 1000)
    assert anybody.ask("POST", path, b" " * 2000, kind).status == 413
    for body in ({"kind": "drop"}, {}, {"kind": "verify", "topic": 5}, {"kind": "verify", "x": 1}):
        assert anybody.post("/api/jobs", body).status == 400
    assert somebody.post("/api/jobs", {"kind": "verify", "topic": "gone"}).status == 404
    for number in ("7", "x", "99999999999"):
        assert anybody.post(f"/api/jobs/{number}/end", {}).status == 404


def test_other_methods(anybody: Client) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        assert anybody.ask(method, "/api/topics").status == 405, method
    assert anybody.ask("GET", "/api/groups/billing/reset").status == 405


def test_an_error_of_storage_is_a_503_and_is_over_when_it_is_over(log, client, monkeypatch) -> None:
    def fail():
        raise StorageError("The bucket does not answer.", "Wait.")

    real = log.overview
    monkeypatch.setattr(log, "overview", fail)
    got = client.get("/api/topics")
    assert (got.status, got.error) == (503, "The bucket does not answer. Wait.")
    monkeypatch.setattr(log, "overview", real)
    time.sleep(1.1)
    assert client.get("/api/topics").status == 200


def test_an_unexpected_error_is_one_sentence(log, client: Client, monkeypatch, caplog) -> None:
    redact.know(["wJalrXUtnFEMI/K7MDENG"])

    def fail(name):
        raise KeyError(f"wJalrXUtnFEMI/K7MDENG\n{name}")

    monkeypatch.setattr(log, "topic", fail)
    got = client.get("/api/topics/orders")
    # Its words are a library's, which may name anything: they are for the log alone.
    assert got.status == 500
    assert got.error == "An unexpected error: KeyError. The program's log says more."
    assert "wJalr" not in got.error and "wJalr" not in caplog.text and "KeyError" in caplog.text


# --- who may ask -------------------------------------------------------------------------------


def test_every_answer_has_the_headers(anybody: Client) -> None:
    for path in ("/", "/app.js", "/style.css", "/api/topics", "/api/nothing", "/api/topics/gone"):
        headers = anybody.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy
        assert "unsafe" not in policy and "http:" not in policy and "*" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers and "access-control-allow-origin" not in headers
    refused = anybody.ask("GET", "/", headers={"Host": "evil.example"})
    assert refused.status == 421 and "content-security-policy" in refused.headers


def test_foreign_hosts_and_origins_are_refused(server: PageServer) -> None:
    client = Client(server)
    port = server.port
    for host in ("evil.example", f"evil.example:{port}", "localhost@evil.example", ""):
        got = client.ask("GET", "/api/topics", headers={"Host": host})
        assert got.status in (400, 421), host
    for host in ("localhost", f"localhost:{port}", "127.0.0.1", "[::1]:80", "LOCALHOST"):
        assert client.ask("GET", "/api/topics", headers={"Host": host}).status == 200, host
    order = {"topic": "orders", "to": "earliest"}
    for origin in ("https://evil.example", "null", "http://localhost:1", "http://127.0.0.1"):
        assert client.post("/api/groups/billing/reset", order, Origin=origin).status == 403
        assert client.ask("GET", "/api/topics", headers={"Origin": origin}).status == 403
    own = f"http://127.0.0.1:{port}"
    assert client.post("/api/groups/billing/reset", order, Origin=own).status == 200
    assert client.ask("GET", "/api/topics", headers={"Sec-Fetch-Site": "cross-site"}).status == 403


def test_two_hosts_in_one_request_are_refused(server: PageServer) -> None:
    with socket.create_connection(server._socket.getsockname()) as connection:
        connection.sendall(
            b"GET /api/topics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n"
            b"Connection: close\r\n\r\n"
        )
        answer = b""
        while data := connection.recv(4096):
            answer += data
    assert answer.startswith(b"HTTP/1.1 400") and b"orders" not in answer


def test_two_origins_in_one_request_are_refused(log, changing: PageServer) -> None:
    """The foreign one was passed over: the last of a name counted."""
    own = f"http://127.0.0.1:{changing.port}"
    for origins in (["http://evil.example", own], [own, "http://evil.example"]):
        connection = http.client.HTTPConnection(*changing._socket.getsockname()[:2], timeout=10)
        connection.putrequest("GET", "/api/topics")
        for origin in origins:
            connection.putheader("Origin", origin)
        connection.endheaders()
        assert connection.getresponse().status == 400
        connection.close()


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTT", b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\nGE"]
)
def test_a_connection_without_a_request_ends(log, monkeypatch, sent) -> None:
    """Two hundred of them, which need no token, were all that the page takes."""
    monkeypatch.setattr(page_server, "REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(page_server, "MAX_CONNECTIONS", 20)
    with PageServer(log, port=0) as server:
        address = server._socket.getsockname()[:2]
        idle = [socket.create_connection(address, timeout=10) for _ in range(30)]
        for connection in idle:
            connection.sendall(sent)
        until(lambda: Client(server).get("/api/topics").status == 200, 10)
        for connection in idle:
            with suppress(ConnectionError):
                while connection.recv(65536):
                    pass
            connection.close()


@contextmanager
def reading_slowly(log, monkeypatch, path: str, clients: int = 10) -> Iterator[tuple[Any, Any]]:
    """The page's connections, and those of clients that asked for something and did not read it."""
    with log.producer() as producer:
        producer.send("hostile", b"v" * 500_000)
    monkeypatch.setattr(page_server, "REQUEST_SECONDS", 0.5)
    server = PageServer(log, port=0)
    server._server.config.timeout_keep_alive = 0.1  # type: ignore[assignment]
    server._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with server, ExitStack() as stack:
        state, slow = server._server.server_state, []
        for _ in range(clients):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(30)
            connection.connect(server._socket.getsockname()[:2])
            connection.sendall(f"GET /{path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            slow.append(connection)
        until(lambda: state.total_requests >= clients)
        yield state.connections, slow


LONG = "api/topics/hostile/records?partition=0&offset=4&limit=1&whole=true"


@pytest.mark.parametrize("path", ["style.css", LONG], ids=["is closing", "goes on"])
def test_a_connection_whose_answer_is_not_read_ends(log, monkeypatch, path) -> None:
    with reading_slowly(log, monkeypatch, path) as (connections, slow):
        until(lambda: not connections)
        with suppress(ConnectionError):
            assert len(slow[0].recv(1_000_000, socket.MSG_WAITALL)) < 500_000


def test_an_answer_that_is_read_slowly_comes_whole(log, monkeypatch) -> None:
    with reading_slowly(log, monkeypatch, LONG, 1) as (_, [slow]):
        monkeypatch.setattr(page_server, "LEAST_BYTES", 1)
        began, read = time.monotonic(), 0
        while read < 500_000:
            time.sleep(0.02)
            taken = len(slow.recv(8192, socket.MSG_WAITALL))
            assert taken, f"cut off after {read} bytes"
            read += taken
        assert time.monotonic() - began > 1, "longer than a request is waited for"


def test_a_body_is_parsed_and_judged_outside_of_the_event_loop(log, monkeypatch) -> None:
    """Twelve megabytes of positions kept every other request waiting for six seconds."""
    threads: list[threading.Thread] = []

    def noting(work: Any) -> Any:
        def noted(*given: Any) -> Any:
            threads.append(threading.current_thread())
            return work(*given)

        return noted

    for place, name in (
        (requests, "json_object"), (resets, "parse"), (resets, "carry_out"),
        (records, "to_documents"), (records, "read_page"), (app.chain_view, "entries"),
    ):  # fmt: skip
        monkeypatch.setattr(place, name, noting(getattr(place, name)))
    with PageServer(log, port=0) as server:
        client = Client(server)
        order = {"topic": "orders", "positions": {"0": 1}}
        assert client.post("/api/groups/billing/reset", order).status == 200
        assert client.post("/api/jobs/7/end", {}).status == 404
        assert client.get("/api/topics/orders/records").status == 200
        assert client.get("/api/topics/orders/entries").status == 200
        assert len(threads) == 7 and server._thread not in threads


def test_a_body_is_no_larger_than_a_reset_needs(anybody: Client) -> None:
    path, kind = "/api/groups/billing/reset", {"content-type": "application/json"}
    most = ",".join(f'"{n}":{10**14}' for n in range(MAX_PARTITIONS))
    order = f'{{"topic":"orders","positions":{{{most}}}}}'.encode()
    got = anybody.ask("POST", path, order, kind)
    assert got.status in (400, 404) and "partition" in got.error  # It was read, and judged.
    lines = "".join(f"orders,{n},{10**14}\n" for n in range(MAX_PARTITIONS))
    got = anybody.post(path, {"from_file": lines})
    assert got.status in (400, 404) and "partition" in got.error
    many = b'{"topic": "orders", "positions": {' + b'"0":0,' * 400_000 + b'"1":0}}'
    got = anybody.ask("POST", path, many, kind)
    assert got.status == 400 and "values" in got.error
    assert anybody.ask("POST", path, b" " * (5 * 1024 * 1024), kind).status == 413


def test_two_read_at_a_time_and_others_wait_their_turn(log, monkeypatch) -> None:
    """Four searches at once took four times the memory of one."""
    go_on, lock = threading.Event(), threading.Lock()
    now, most = 0, 0

    def slow(*given: Any) -> Any:
        nonlocal now, most
        with lock:
            now, most = now + 1, max(most, now + 1)
        assert go_on.wait(30)
        with lock:
            now -= 1
        raise StorageError("Enough.")

    for place, name in (
        (records, "read_page"), (resets, "carry_out"), (app.chain_view, "entries"),
        (app.chain_view, "segment_files"),
    ):  # fmt: skip
        monkeypatch.setattr(place, name, slow)
    with PageServer(log, port=0) as server:
        client = Client(server)
        asks = [
            lambda: client.get("/api/topics/orders/records"),
            lambda: client.get("/api/topics/orders/entries"),
            lambda: client.get("/api/topics/orders/files"),
            lambda: client.post("/api/groups/billing/reset", {"to": "latest"}),
        ] * 2
        answers: list[int] = []
        threads = [
            threading.Thread(target=lambda one=one: answers.append(one().status)) for one in asks
        ]
        for thread in threads:
            thread.start()
        until(lambda: now == app.MAX_READING, 20)
        assert client.get("/api/topics").status == 200, "what reads no files goes on"
        monkeypatch.setattr(app, "BUSY_SECONDS", 0.1)
        late = client.get("/api/topics/orders/records")
        assert late.status == 503 and "Try again" in late.error
        go_on.set()
        for thread in threads:
            thread.join(30)
        assert answers == [503] * len(asks) and most == app.MAX_READING


def test_a_body_that_does_not_come_ends(log, monkeypatch) -> None:
    monkeypatch.setattr(requests, "BODY_SECONDS", 0.3)
    with PageServer(log, port=0) as server:
        sent = {"content-type": "application/json", "content-length": "10"}
        answer = Client(server).ask("POST", "/api/jobs", b"{", sent)
        assert answer.status == 408 and "not whole" in answer.error


def test_it_only_reads_unless_changes_are_allowed(log, client: Client) -> None:
    order = {"topic": "orders", "to": "earliest", "dry_run": False}
    got = client.post("/api/groups/billing/reset", order)
    assert got.status == 403 and "--allow-changes" in got.error
    assert client.post("/api/jobs", {"kind": "maintain"}).status == 403
    assert log.group("billing").committed()["orders", 0].offset == 10


def test_a_change_needs_the_token(log, changing: PageServer) -> None:
    order = {"topic": "orders", "to": "earliest", "dry_run": False}
    path = "/api/groups/billing/reset"
    client = Client(changing)
    assert client.get("/api/topics").status == 200  # Reading does not need it on loopback.
    for headers in ({}, {"authorization": "Bearer no"}, {"cookie": "offsetlog_page_x=no"}):
        got = client.post(path, order, **headers)
        assert got.status == 401 and "token" in got.error
        assert client.post("/api/jobs", {"kind": "maintain"}, **headers).status == 401
    assert log.group("billing").committed()["orders", 0].offset == 10
    bearer = {"authorization": f"Bearer {token_of(changing)}"}
    foreign = client.post(path, order, **bearer, Origin="https://evil.example")
    assert foreign.status == 403
    assert client.post(path, order, **bearer).json["executed"]
    assert log.group("billing").committed()["orders", 0].offset == 0


def test_the_cookie_is_for_reading_alone(log) -> None:
    """It goes to every port of the host, so another user's program there may come by it."""
    with PageServer(log, host="0.0.0.0", port=0, allow_changes=True) as server:
        token, client = token_of(server), Client(server, Host="localhost")
        got = client.get("/", token=token)
        # The script takes the token from behind the #, which goes to no server.
        assert (got.status, got.headers["location"]) == (303, f"/#token={token}")
        assert got.data == b"" and got.headers["cache-control"] == "no-store"
        cookie = got.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Path=/;" in cookie
        assert token not in cookie
        held = cookie.partition(";")[0]
        reader = Client(server, Host="localhost", cookie=f"other=1; {held}")
        for path in ("/", "/app.js", "/api/topics", "/api/topics/orders/records"):
            assert client.get(path).status == 401 and reader.get(path).status == 200, path
        state = reader.get("/api/state").json
        assert (state["has_token"], state["may_verify"]) == (False, False)
        order = {"topic": "orders", "to": "earliest", "dry_run": False}
        value = held.partition("=")[2]
        for headers in ({}, {"authorization": f"Bearer {value}"}):
            for path, body in (
                ("/api/groups/billing/reset", order), ("/api/jobs", {"kind": "maintain"}),
                ("/api/jobs", {"kind": "verify"}),
            ):  # fmt: skip
                refused = reader.post(path, body, **headers)
                assert refused.status == 401 and "token" in refused.error, path
        assert reader.get("/", token=value).status == 401
        assert log.group("billing").committed()["orders", 0].offset == 10
        got = reader.post("/api/groups/billing/reset", order, authorization=f"Bearer {token}")
        assert got.json["executed"]


def test_wrong_tokens_in_the_address(changing: PageServer) -> None:
    client = Client(changing)
    for token in ("no", "", "\u00e9"):
        wrong = client.get("/", token=token)
        assert wrong.status == 401 and "set-cookie" not in wrong.headers
    assert client.get("/", token=token_of(changing), more=1).status == 400


def test_each_start_has_a_token_of_its_own(log) -> None:
    tokens = set()
    for _ in range(2):
        with PageServer(log, port=0, allow_changes=True) as server:
            tokens.add(token_of(server))
            assert len(token_of(server)) >= 40 and token_of(server) not in server.url
    assert len(tokens) == 2


def test_off_loopback_everything_needs_the_token(log) -> None:
    with PageServer(log, host="0.0.0.0", port=0, allowed_hosts=["logs.example.org"]) as server:
        client = Client(server, Host="logs.example.org")
        for path in ("/", "/app.js", "/api/topics", "/api/state"):
            got = client.get(path)
            assert got.status == 401 and "token" in got.error, path
        with_token = {"authorization": f"Bearer {token_of(server)}"}
        assert client.ask("GET", "/api/topics", headers=with_token).status == 200
        foreign = client.ask("GET", "/api/topics", headers={**with_token, "Host": "evil.example"})
        assert foreign.status == 421
        order = {"topic": "orders", "to": "earliest", "dry_run": False}
        got = client.post("/api/groups/billing/reset", order, **with_token)
        assert got.status == 403  # It was not started with --allow-changes.


def test_the_address_that_is_printed_is_answered(log, monkeypatch) -> None:
    """On all addresses the machine's name was printed, and refused with 421."""
    monkeypatch.setattr(socket, "gethostname", lambda: "Build-7.internal")
    with PageServer(log, host="0.0.0.0", port=0) as server:
        printed = urlsplit(server.sign_in_url)
        assert printed.hostname == "build-7.internal" and printed.port == server.port
        got = Client(server, Host=printed.netloc).ask("GET", f"/?{printed.query}")
        assert got.status == 303, got.data
        assert Client(server, Host="evil.example").get("/").status == 421


def test_below_a_base_path(log) -> None:
    """Whether the proxy takes the path away or not."""
    with PageServer(log, port=0, allow_changes=True, base_path="/data/logs/") as server:
        assert server.url.endswith("/data/logs/")
        client = Client(server)
        assert client.get("/api/topics").status == 200  # With the base path.
        assert client.ask("GET", "/api/topics").status == 200
        got = client.ask("GET", "/data/logs")
        assert (got.status, got.headers["location"]) == (307, "/data/logs/")
        got = client.get("/", token=token_of(server))
        assert got.headers["location"] == f"/data/logs/#token={token_of(server)}"
        assert "Path=/data/logs/;" in got.headers["set-cookie"]
        assert client.ask("GET", "/data/logsx/api/topics").status == 404


@pytest.mark.parametrize("text", ["/a b", "/a?b", "/../x", "//", "/a//b", "/<x>", "/é"])
def test_wrong_base_paths(text) -> None:
    if text == "//":
        assert check_base_path(text) == ""
        return
    with pytest.raises(InvalidRequestError, match="base path"):
        check_base_path(text)


def test_wrong_allowed_hosts() -> None:
    for text in ("", "http://a", "a/b", "a@b"):
        with pytest.raises(InvalidRequestError, match="name of a host"):
            check_allowed_host(text)


def test_a_port_that_is_taken_is_an_error(log, server: PageServer) -> None:
    port = server.port
    with pytest.raises(OffsetLogError, match=f"can't listen on 127.0.0.1:{port}"):
        PageServer(log, port=port)
    with pytest.raises(OffsetLogError, match="can't listen"):
        PageServer(log, host="no.such.host.invalid", port=0)


def test_a_log_that_is_not_there_is_an_error(tmp_path) -> None:
    nothing = offsetlog.open(str(tmp_path / "nothing"))
    with nothing as log, pytest.raises(InvalidRequestError, match="no log"):
        PageServer(log, port=0)


def test_metrics(log, client: Client) -> None:
    got = client.get("/metrics")
    assert got.status == 200 and got.headers["content-type"].startswith("text/plain; version=0.0.4")
    line = 'kafka_consumergroup_lag{consumergroup="billing",topic="orders",partition="0"} 20'
    assert line in got.data.decode().splitlines()
    names = {text.split("{")[0] for text in exposition(log).splitlines()}
    assert {text.split("{")[0] for text in got.data.decode().splitlines()} == names


def test_metrics_of_queries(log) -> None:
    from offsetlog.metrics import Metrics
    from pyspark_offsetlog.about.lag_report import LagReport

    metrics = Metrics()
    lines = (Lag("orders", 0, 10, 0, 30, 20, 1000, 5.0, 0, False, None, ""),)
    at = "2026-03-01T12:00:00.000Z"
    metrics.report(LagReport("billing-query", "run", 7, at, ("billing",), lines))
    with PageServer(log, port=0, metrics=metrics) as server:
        client = Client(server)
        assert b'offsetlog_query_lag{query="billing-query"' in client.get("/metrics").data
        [query] = client.get("/api/queries").json
    assert query["total"] == {"records": 20, "bytes": 1000, "seconds": 5.0}
    assert (query["query"], query["batch"], query["at"]) == ("billing-query", 7, at)
    assert query["groups"] == ["billing"] and query["partitions"][0]["committed"] == 10


def test_without_queries(anybody: Client) -> None:
    assert anybody.get("/api/queries").json == []


def test_stored_text_is_json_and_never_html(anybody: Client) -> None:
    got = anybody.get("/api/topics/hostile/records", order="oldest")
    assert got.headers["content-type"] == "application/json"
    assert got.json["records"][0]["key"] == HOSTILE
    assert all(byte < 128 for byte in got.data)
    assert anybody.get("/api/groups/billing").json["partitions"][2]["metadata"] == HOSTILE


def test_the_page_needs_no_other_host(anybody: Client) -> None:
    names = [file.name for file in STATIC.iterdir() if file.name != "index.html"]
    assert len(names) > 10
    for path in ("/", *(f"/{name}" for name in names)):
        got = anybody.get(path)
        assert got.status == 200 and len(got.data) > 100
        text = got.data.decode().replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text and "https:" not in text and "//cdn" not in text
        again = anybody.ask("GET", path, headers={"If-None-Match": got.headers["etag"]})
        assert (again.status, again.data) == (304, b"")
    page = anybody.get("/").data.decode()
    assert "<style" not in page and "style=" not in page and "onclick" not in page
    assert page.count("<script") == 1 and '<script type="module" src="app.js">' in page
    for name in names:  # All are asked for at once, and not one after another.
        assert (
            not name.endswith(".js") or f'{"src" if name == "app.js" else "href"}="{name}"' in page
        )


def test_the_program_of_the_page_on_it(tmp_path) -> None:
    [program] = blocks("python", ROOT / "docs" / "page.md")
    with offsetlog.open(f"{tmp_path}/page") as log:
        fill(log)
    out = run_program([sys.executable, "-c", moved(program, tmp_path)])
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\n", out)


ODD = [b"http://[::1", b"[::1", b"http://a:b", b"a:b", b"localhost", b"Bearer \xff", b"x=\xff; y"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["Host", "Origin", "Cookie", "Authorization", "Content-Type", "Accept"]
            ),
            st.one_of(st.binary(max_size=40), st.sampled_from(ODD)).filter(
                lambda b: not set(b) & set(b"\r\n\0")
            ),
        ),
        max_size=4,
    ),
    st.text(alphabet="/apitocsrd.%25{}[]:;?&=#*\\\"'<>0\u00e9\u202e", max_size=60),
    st.sampled_from(["GET", "POST", "HEAD", "PUT"]),
)
@example([("Origin", b"http://[::1")], "api/topics", "GET")
@settings(max_examples=150, deadline=None)
def test_no_request_fails(wild: PageServer, headers, path, method) -> None:
    """Whatever is asked is answered, and by no 5xx."""
    names = b"".join(f"{name}: ".encode() + value + b"\r\n" for name, value in headers)
    host = b"" if any(name == "Host" for name, _ in headers) else b"Host: localhost\r\n"
    target = quote(f"/{path}", safe="/?&=%:;[]{}<>'\"\\*").replace(" ", "+").encode()
    with socket.create_connection(("127.0.0.1", wild.port), timeout=10) as connection:
        connection.sendall(
            method.encode() + b" " + target + b" HTTP/1.1\r\n" + host + names
            + b"Connection: close\r\n\r\n"
        )  # fmt: skip
        answer = b""
        while data := connection.recv(65536):
            answer += data
    status = int(answer.split(b" ", 2)[1])
    assert status < 500, answer[:300]
    assert b"Traceback" not in answer
