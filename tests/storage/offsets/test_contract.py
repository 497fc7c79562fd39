"""Both tables keep the same promises: a Delta table, and a chain where Delta cannot reach."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offsetlog.core.group.decide import decide
from offsetlog.core.group.facts import Fact, OffsetAndMetadata
from offsetlog.core.group.fold import fold
from offsetlog.core.group.membership import resets_since
from offsetlog.core.group.requests import CommitRequest, DeleteGroupRequest, ResetRequest
from offsetlog.core.group.reset import OffsetSpan, ToOffset
from offsetlog.core.group.state import EMPTY, GroupsState
from offsetlog.engine.env import REAL
from offsetlog.engine.group.offsets_table import OffsetsTable
from offsetlog.format import facts_arrow as fact_rows
from offsetlog.storage import Committed, Conflict, Unknown, open_store
from offsetlog.storage.delta import table as delta
from offsetlog.storage.delta.table import DeltaOffsets
from offsetlog.storage.offsets.chain import ChainOffsets
from offsetlog.storage.offsets.open import FOLDER, open_offsets
from offsetlog.storage.offsets.port import OffsetsPort, TableNews

Open = Callable[[], OffsetsPort]
PLACES = ["delta-local", "chain-local", "chain-memory", "delta-moto", "delta-azurite",
          "chain-fake_gcs", "chain-sftp"]  # fmt: skip
FAST = ("delta-local", "chain-local", "chain-memory")


@pytest.fixture(params=PLACES)
def opened(request, tmp_path) -> Open:
    kind, _, place = request.param.partition("-")
    options: dict = {}
    if place == "local":
        url = str(tmp_path / "log")
    elif place == "memory":
        url = f"memory://{tmp_path.name}"
    else:
        url, options = request.getfixturevalue(place)
        url = f"{url}/{tmp_path.name}"
    if place == "azurite":
        options = {**options, "connection_string": request.getfixturevalue("starting_lists")}

    def make() -> OffsetsPort:
        store = open_store(url, **options)
        port = ChainOffsets(store, FOLDER) if kind == "chain" else open_offsets(store)
        assert isinstance(port, ChainOffsets if kind == "chain" else DeltaOffsets)
        return port

    return make


@pytest.fixture(scope="module")
def starting_lists(azurite) -> Iterator[str]:
    """The address of a server before azurite that lists from ``startFrom``, as Azure does:
    azurite leaves it out, and then deltalake takes the table for a broken one."""
    text = azurite.options["connection_string"]
    [endpoint] = re.findall(r"BlobEndpoint=http://127.0.0.1:(\d+)", text)

    class Before(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            behind = HTTPConnection("127.0.0.1", int(endpoint))
            headers = {**self.headers, "Host": f"127.0.0.1:{endpoint}"}
            behind.request(self.command, self.path, body, headers)
            got = behind.getresponse()
            data = got.read()
            start = parse_qs(urlsplit(self.path).query).get("startFrom")
            if start:
                for blob in re.findall(rb"<Blob>.*?</Blob>", data, re.DOTALL):
                    name = re.search(rb"<Name>(.*?)</Name>", blob)
                    if name and name[1].decode() < start[0]:
                        data = data.replace(blob, b"")
            self.send_response(got.status)
            for name, value in got.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            size = got.getheader("content-length") if self.command == "HEAD" else len(data)
            self.send_header("Content-Length", str(size or 0))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else data)
            behind.close()

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815

        def log_message(self, *said: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Before) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield text.replace(f"127.0.0.1:{endpoint}", f"127.0.0.1:{server.server_port}")
        server.shutdown()


def facts_of(
    table: GroupsState, number: int, partitions: int = 2
) -> tuple[GroupsState, tuple[Fact, ...]]:
    said = {("orders", p): OffsetAndMetadata(number, f"é{number}") for p in range(partitions)}
    made = decide(table, [CommitRequest("billing", None, 0, 0, said)], 1000 + number, f"w{number}")
    return made.table, made.facts


def begin(port: OffsetsPort) -> GroupsState:
    port.create()
    news = port.read(-1)
    assert news.facts == ()
    return fold(EMPTY, (), news.version)


def grow(port: OffsetsPort, table: GroupsState, count: int) -> GroupsState:
    for _ in range(count):
        after, facts = facts_of(table, table.version)
        assert isinstance(port.append(facts, after.version), Committed)
        table = after
    return table


def fresh(port: OffsetsPort) -> GroupsState:
    """As a program sees it that begins now."""
    table = port.checkpoint()
    news = port.read(table.version)
    return fold(table, news.facts, news.version)


def test_there_is_nothing_before_it_is_made(opened):
    port = opened()
    assert port.read(-1) == TableNews(-1, ())
    assert port.checkpoint() == EMPTY
    port.create()
    port.create()
    opened().create()
    assert port.read(-1) == opened().read(-1) == TableNews(0, ())
    assert port.read(0) == TableNews(0, ())


def test_an_append_is_at_exactly_its_version(opened):
    port, other = opened(), opened()
    table = begin(port)
    first, facts = facts_of(table, 1)
    assert isinstance(port.append(facts, 1), Committed)
    assert other.read(0) == TableNews(1, facts)
    assert isinstance(port.append(facts, 1), Conflict)
    assert isinstance(other.append(facts, 1), Conflict)
    second, more = facts_of(first, 2)
    assert isinstance(other.append(more, 2), Committed)
    assert isinstance(port.append(more, 2), Conflict)
    assert port.read(0) == TableNews(2, facts + more)
    assert port.read(1) == TableNews(2, more)
    assert fresh(opened()) == second


def test_of_many_racers_one_gets_the_version(opened):
    ports = [opened() for _ in range(6)]
    table = begin(ports[0])
    for round_ in range(4):
        after, facts = facts_of(table, round_)
        mine = [tuple(f._replace(write_id=f"r{i}") for f in facts) for i in range(len(ports))]
        answers: list[object] = [None] * len(ports)
        barrier = threading.Barrier(len(ports))

        def race(i, after=after, mine=mine, answers=answers, barrier=barrier):
            ports[i].read(after.version - 1)
            barrier.wait()
            answers[i] = ports[i].append(mine[i], after.version)

        threads = [threading.Thread(target=race, args=(i,)) for i in range(len(ports))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winners = [i for i, answer in enumerate(answers) if isinstance(answer, Committed)]
        assert len(winners) == 1, answers
        assert sum(isinstance(answer, Conflict) for answer in answers) == len(ports) - 1
        for port in ports:
            assert port.read(after.version - 1) == TableNews(after.version, mine[winners[0]])
        table = fold(table, mine[winners[0]], after.version)


def test_upkeep_changes_nothing_that_is_read(opened):
    port, sleeper = opened(), opened()
    table = grow(port, begin(port), 5)
    seen = fold(EMPTY, sleeper.read(-1).facts, table.version)
    port.tidy()
    table = fold(table, (), port.read(table.version).version)
    table = grow(port, table, 3)
    port.store_checkpoint(table)
    done = port.maintain(table, 0)
    tip = port.read(table.version)
    assert tip.facts == () and tip.version == done.version
    late = sleeper.read(seen.version)
    assert fold(seen, late.facts, late.version).groups == table.groups
    assert fresh(opened()).groups == table.groups
    cold = opened().read(-1)
    assert fold(EMPTY, cold.facts, cold.version).groups == table.groups


@pytest.mark.parametrize("opened", ["delta-local", "delta-moto", "chain-local"], indirect=True)
def test_upkeep_by_many_at_once_changes_nothing_that_is_read(opened):
    port = opened()
    begin(port)
    written = OffsetsTable(port, REAL)
    errors: list[BaseException] = []
    done = threading.Event()

    def maintain() -> None:
        mine = OffsetsTable(opened(), REAL)
        try:
            while not done.is_set():
                mine.maintain(0)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=maintain) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(25):
        written.accept(
            CommitRequest("billing", None, 0, 0, {("o", 0): OffsetAndMetadata(number, "")})
        )
    done.set()
    for thread in threads:
        thread.join()
    assert not errors
    cold = opened().read(-1)
    truth = fold(EMPTY, cold.facts, cold.version)
    assert sorted(fact.offset or 0 for fact in cold.facts) == list(range(25))
    assert fresh(opened()).groups == truth.groups


def test_a_checkpoint_is_the_state_and_a_broken_one_is_none(opened):
    port = opened()
    table = grow(port, begin(port), 3)
    port.store_checkpoint(table)
    assert opened().checkpoint() == table
    name = f"{FOLDER}/_state/checkpoint.json"
    data = port.store.get(name)
    port.store.put(name, data.replace(b"billing", b"bilking"))
    assert opened().checkpoint() == EMPTY
    assert fresh(opened()) == table


def test_a_checkpoint_of_an_earlier_version_costs_a_read_of_all_facts(opened):
    """It does not say where resets put the group: that is folded from the facts."""
    port = opened()
    table = grow(port, begin(port), 2)
    spans = {("orders", 0): OffsetSpan(0, 9)}
    asked = ResetRequest("billing", ToOffset(7), (("orders", 0),), spans, {})
    made = decide(table, [asked, DeleteGroupRequest("billing")], 2000, "r")
    assert isinstance(port.append(made.facts, made.version), Committed)
    told = json.loads(fact_rows.encode_checkpoint(made.table, port._table_id()).split(b"\n")[1])
    told["state"]["groups"]["billing"].pop("reset_to", None)
    port.store.put(f"{FOLDER}/_state/checkpoint.json", fact_rows._sealed(told))
    assert opened().checkpoint() == EMPTY
    found = fresh(opened())
    assert found == made.table
    assert resets_since(found.group("billing"), 0) == {("orders", 0): 7}


def test_a_checkpoint_of_another_tables_life_is_none(opened):
    port = opened()
    table = grow(port, begin(port), 3)
    port.store_checkpoint(table)
    kept = port.store.get(f"{FOLDER}/_state/checkpoint.json")
    port.store.delete_tree(FOLDER)
    again = opened()
    made = begin(again)
    for number in range(3):
        said = {("orders", 0): OffsetAndMetadata(number, "of the new one")}
        decided = decide(made, [CommitRequest("audit", None, 0, 0, said)], 9, f"n{number}")
        assert isinstance(again.append(decided.facts, decided.version), Committed)
        made = decided.table
    port.store.put(f"{FOLDER}/_state/checkpoint.json", kept)
    assert opened().checkpoint() == EMPTY
    assert fresh(opened()) == made


def test_heartbeats_are_overwritten(opened):
    port = opened()
    assert port.look_at_beat("m-1") is None
    assert port.beat_age_ms("m-1", 0) is None and port.list_beats() == {}
    for text in ("1", "2"):
        port.beat("m-1", text)
        assert opened().look_at_beat("m-1") == text
    assert isinstance(port.beat_age_ms("m-1", 0), int)
    now = port.storage_now()
    assert now is not None and abs(port.beat_age_ms("m-1", now)) < 120_000
    port.beat("m-2", "1")
    assert set(port.list_beats()) == {"m-1", "m-2"}
    listed = port.list_beats()
    port.beat("m-2", "overwritten by a longer one")
    assert port.list_beats()["m-1"] == listed["m-1"]
    assert port.list_beats()["m-2"] != listed["m-2"]
    port.forget_beat("m-2")
    port.forget_beat("m-1")
    port.forget_beat("m-1")
    assert port.look_at_beat("m-1") is None


@pytest.mark.parametrize("opened", FAST, indirect=True)
def test_a_checkpoint_without_a_table_is_none(opened):
    port = opened()
    data = fact_rows.encode_checkpoint(GroupsState(3, {}), "")
    port.store.put(f"{FOLDER}/_state/checkpoint.json", data)
    assert port.checkpoint() == EMPTY


@pytest.mark.parametrize("opened", ["delta-local", "delta-moto"], indirect=True)
def test_who_slept_while_the_log_was_cleaned_misses_nothing(opened, monkeypatch):
    monkeypatch.setattr(delta, "LOGS_KEPT", 3)
    monkeypatch.setattr(delta, "CHECK_SECONDS", 0.05)
    port, sleeper, writer = opened(), opened(), opened()
    table = grow(port, begin(port), 2)
    seen = fold(EMPTY, sleeper.read(-1).facts, table.version)
    assert sleeper.read(seen.version) == TableNews(seen.version, ())
    _, old = facts_of(table, 99)
    writer.read(table.version)
    table = grow(port, table, 20)
    port.tidy()
    table = fold(table, (), port.read(table.version).version)
    assert port.store.get(f"{FOLDER}/_delta_log/{seen.version + 1:020d}.json") is None
    # The number is free again, and still nobody gets it.
    assert isinstance(writer.append(old, seen.version + 1), Conflict)
    time.sleep(0.06)
    late = sleeper.read(seen.version)
    assert late.version == table.version
    assert fold(seen, late.facts, late.version) == table


@pytest.mark.parametrize("opened", ["delta-local", "delta-moto"], indirect=True)
@pytest.mark.parametrize("note", ["is there", "is of old"])
def test_a_put_that_comes_after_the_log_was_cleaned_is_believed_by_nobody(
    opened, note, monkeypatch
):
    """As of a process that stood still in the middle of an append, for hundreds of versions."""
    monkeypatch.setattr(delta, "LOGS_KEPT", 3)
    port, bystander = opened(), opened()
    stood = OffsetsTable(opened(), REAL)
    table = grow(port, begin(port), 2)
    port.tidy()
    log = f"{FOLDER}/_delta_log"
    early = port.store.get(f"{log}/_last_checkpoint")
    table = fold(table, (), port.read(table.version).version)
    table = grow(port, table, 2)
    bystander.read(-1)
    seen = stood.look()
    table = grow(port, table, 20)
    port.tidy()
    table = fold(table, (), port.read(table.version).version)
    if note == "is of old":
        port.store.put(f"{log}/_last_checkpoint", early)
    name = f"{log}/{seen.version + 1:020d}.json"
    assert port.store.get(name) is None

    def late(facts, version):
        """The put takes effect, and its answer is not believed, since it took too long."""
        stood.port.append = real
        sink = pa.BufferOutputStream()
        pq.write_table(fact_rows.to_arrow(facts), sink)
        port.store.put(f"{FOLDER}/late.parquet", sink.getvalue().to_pybytes())
        add = {"path": "late.parquet", "size": 1, "partitionValues": {}, "dataChange": True}
        port.store.put(name, json.dumps({"add": add}).encode() + b"\n")
        stood.port._doubt = True
        return Unknown("the append took 600 s")

    real, stood.port.append = stood.port.append, late
    said = {("orders", 0): OffsetAndMetadata(7, "mine")}
    stood.accept(CommitRequest("audit", None, 0, 0, said))
    truth = fresh(opened())
    assert truth.group("audit").positions["orders", 0].offset == 7, "it was acknowledged"
    assert truth.group("billing").positions == table.group("billing").positions
    assert stood.table.groups == truth.groups
    bystander._doubt = True
    news = bystander.read(seen.version)
    assert fold(seen, news.facts, news.version).groups == truth.groups


@pytest.mark.parametrize("opened", FAST, indirect=True)
def test_a_look_costs_what_is_new(opened):
    from bench.counting_store import CountingStore

    port = opened()
    table = grow(port, begin(port), 30)
    port.tidy()
    reader = opened()
    reader.read(-1)
    counting = CountingStore(reader.store)
    reader.store = counting
    tip = reader.read(table.version)
    reader.read(tip.version)
    counting.reset()
    for _ in range(10):
        assert reader.read(tip.version).facts == ()
    assert counting.total <= 11
