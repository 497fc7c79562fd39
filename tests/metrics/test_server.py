"""``metrics --listen``: what Prometheus scrapes without the page, and what it costs to be asked."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection

import pytest

import offsetlog
from offsetlog.engine.env import REAL
from offsetlog.errors import StorageError
from offsetlog.metrics import CONTENT_TYPE, server
from offsetlog.metrics.server import MetricsServer
from tests.cli.shell import PROGRAM, environment
from tests.cli.shell import offsetlog as command
from tests.metrics.scrapes import parsed, value, written
from tests.waiting import until


@contextmanager
def serving(text: Callable[[], str], host: str = "127.0.0.1") -> Iterator[MetricsServer]:
    one = MetricsServer(text, host, 0, REAL)
    thread = threading.Thread(target=one.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield one
    finally:
        one.shutdown()
        one.server_close()
        thread.join()


def asked(
    one: MetricsServer, path: str = "/metrics", host: str | None = None, method: str = "GET"
) -> tuple[int, str, str]:
    with closing(HTTPConnection("127.0.0.1", one.port, timeout=20)) as connection:
        connection.request(method, path, headers={} if host is None else {"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_it_is_ended(root, number) -> None:
    with offsetlog.open(str(root)) as log:
        log.create_topic("orders", partitions=2)
        written(log, "orders", 3, partition=1)
    words = [*PROGRAM, "--root", str(root), "metrics", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        assert line.startswith("The metrics of file://") and line.endswith("/metrics\n")
        port = int(line.rpartition(":")[2].partition("/")[0])
        with closing(HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            assert (answer.status, answer.headers["Content-Type"]) == (200, CONTENT_TYPE)
            series = parsed(answer.read().decode())
        labels = {"topic": "orders", "partition": 1}
        assert value(series, "kafka_topic_partition_current_offset", **labels) == 3
        process.send_signal(number)
        assert process.wait(20) == 128 + number
        assert process.stdout.read() == "" and process.stderr.read() == "Ctrl-C ends it.\n"


@pytest.mark.parametrize(
    ("listen", "said"),
    [
        ("nowhere", "is not HOST:PORT"),
        ("127.0.0.1:65536", "is not HOST:PORT"),
        ("::1:9308", "an IPv6 address is written as [::1]:9308"),
        ("203.0.113.7:0", "Nothing can listen on 203.0.113.7:0"),
    ],
)
def test_a_place_where_nothing_can_listen(root, listen, said) -> None:
    with offsetlog.open(str(root)) as log:
        log.create_topic("orders")
    result = command("--root", root, "metrics", "--listen", listen)
    assert result.status in (1, 2) and said in result.err and result.err.count("\n") == 1


def test_a_log_that_is_not_there_is_not_served(tmp_path) -> None:
    result = command("--root", tmp_path / "nothing", "metrics", "--listen", ":0")
    assert result.status == 2 and "There is no log" in result.err and not result.out


def test_on_loopback_other_names_are_refused() -> None:
    """A web page whose name leads here reads nothing."""
    with serving(lambda: "# EOF\n") as one:
        for own in (None, "localhost", f"localhost:{one.port}", "127.0.0.1", "[::1]:9308"):
            assert asked(one, host=own)[0] == 200, own
        for other in ("evil.example", f"evil.example:{one.port}", "127.0.0.1.evil.example", ""):
            assert asked(one, host=other)[0] in (400, 421), other
        assert asked(one, path="/")[0] == 404
        assert asked(one, method="POST")[0] == 501


def test_an_error_is_a_sentence_without_a_trace_or_words_of_a_library() -> None:
    def fails() -> str:
        raise StorageError("The storage does not answer.")

    def breaks() -> str:
        raise ValueError("key=SECRET at /home/ann/x.py")

    with serving(fails) as one:
        assert asked(one)[::2] == (503, "The storage does not answer.\n")
    with serving(breaks) as one:
        assert asked(one)[::2] == (503, "An unexpected ValueError.\n")


def test_many_at_once_share_a_look_and_more_are_turned_away(monkeypatch) -> None:
    looks: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def text() -> str:
        looks.append(1)
        begun.set()
        assert go_on.wait(20)
        return "# EOF\n"

    answers: list[int] = []
    monkeypatch.setattr(server, "LEAST_SECONDS", 60.0)
    with serving(text) as one:

        def ask() -> None:
            answers.append(asked(one)[0])

        threads = [threading.Thread(target=ask) for _ in range(server.MAX_CONNECTIONS)]
        threads[0].start()
        assert begun.wait(20)
        for thread in threads[1:]:
            thread.start()
        until(lambda: not one._free._value, 20)
        with pytest.raises(OSError):
            asked(one)
        go_on.set()
        for thread in threads:
            thread.join(20)
        assert (answers, len(looks)) == ([200] * server.MAX_CONNECTIONS, 1)
        until(lambda: one._free._value == server.MAX_CONNECTIONS, 20)
        assert asked(one)[0] == 200


def test_whoever_drips_is_cut_off(monkeypatch) -> None:
    monkeypatch.setattr(server, "PATIENCE_SECONDS", 0.3)
    with serving(lambda: "# EOF\n") as one:
        with socket.create_connection(("127.0.0.1", one.port), timeout=20) as slow:
            slow.sendall(b"GET /metrics HTTP/1.1\r\n")
            until(lambda: ended(slow), 20)
        assert asked(one)[0] == 200


def ended(connection: socket.socket) -> bool:
    """Whether the server has ended it, though a byte comes now and then."""
    try:
        connection.sendall(b"X")
        connection.settimeout(0.05)
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_its_address_as_json(root, monkeypatch) -> None:
    with offsetlog.open(str(root)) as log:
        log.create_topic("orders")
    monkeypatch.setattr(MetricsServer, "serve", lambda self: self.server_close())
    said = json.loads(command("--root", root, "metrics", "--listen", ":0", "--json").text)
    assert said["url"].startswith("http://127.0.0.1:") and said["root_id"]
