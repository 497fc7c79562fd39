"""A process that has loaded what a stream's planner needs, and forks a planner for each query.

Invariants:

1. It ends when its standard input does, which Spark's JVM holds, however that ends; and its
   planners with it.
2. A planner ends when whoever asked for it goes; Spark kills that process to end a query.
3. Only the user's own processes reach it: the socket lies in a folder that nobody else may open.
4. At most ``MOST_PLANNERS`` run at once. Who gets none starts one without it.
5. It runs one thread and opens no log, so a fork takes nothing along but modules.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
from typing import Any

from pyspark_offsetlog.runtime.planner_launch import REFUSED, STARTED
from pyspark_offsetlog.runtime.termination import RUNNER

MOST_PLANNERS = 64
REQUEST_SECONDS = 10.0
MOST_BYTES = 8 * 1024 * 1024
_LOADED = (RUNNER, "pyspark_offsetlog.source.stream", "pyspark_offsetlog.source.to_spark")


def serve(listener: socket.socket) -> None:
    """Serve until standard input ends."""
    for name in _LOADED:
        __import__(name)
    _Server(listener).run()


class _Server:
    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._planners: dict[int, socket.socket] = {}
        """By their process ids: the connections of who asked for them."""
        self._selector = selectors.DefaultSelector()
        self._selector.register(sys.stdin, selectors.EVENT_READ)
        self._selector.register(listener, selectors.EVENT_READ)
        woken, waker = socket.socketpair()
        for end in (woken, waker):
            end.setblocking(False)
        self._woken = woken
        self._selector.register(woken, selectors.EVENT_READ)
        # An ended planner wakes the loop.
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._waker = waker

    def run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is sys.stdin:
                    if not os.read(0, 1):
                        self._end_all()
                        return
                elif key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj is self._woken:
                    self._woken.recv(4096)
                elif key.fileobj in self._planners.values():
                    # Nobody says anything more: the other end is closed.
                    self._selector.unregister(key.fileobj)
                    os.kill(key.data, signal.SIGTERM)
            self._reap()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(REQUEST_SECONDS)
        try:
            request, streams = _request(connection)
        except (OSError, ValueError):
            connection.close()
            return
        is_same = request["environment"].get("PYTHONPATH") == os.environ.get("PYTHONPATH")
        if request["module"] != RUNNER or not is_same or len(self._planners) >= MOST_PLANNERS:
            _answer(connection, REFUSED)
            connection.close()
        else:
            self._fork(connection, request, streams)
        for stream in streams:
            os.close(stream)

    def _fork(self, connection: socket.socket, request: dict[str, Any], streams: list[int]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        planner = os.fork()
        if planner == 0:
            self._plan(connection, request, streams)
        _answer(connection, STARTED)
        self._planners[planner] = connection
        self._selector.register(connection, selectors.EVENT_READ, planner)

    def _plan(self, connection: socket.socket, request: dict[str, Any], streams: list[int]) -> None:
        """In the child: be what Spark started. Never returns."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._selector.close()
            for held in (self._listener, self._woken, self._waker, connection):
                held.close()
            for other in self._planners.values():
                other.close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            os.chdir(request["folder"])
            os.environ.clear()
            os.environ.update(request["environment"])
            sys.argv = [RUNNER]
            # It is run as a program, which a module that is imported already would warn of.
            sys.modules.pop(RUNNER, None)
            runpy.run_module(RUNNER, run_name="__main__", alter_sys=True)
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:  # noqa: BLE001 - as Python does when a program fails
            sys.excepthook(*sys.exc_info())
        finally:
            for stream_ in (sys.stdout, sys.stderr):
                stream_.flush()
            os._exit(status & 0xFF)

    def _reap(self) -> None:
        while self._planners:
            try:
                planner, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not planner:
                return
            connection = self._planners.pop(planner)
            if connection.fileno() in self._selector.get_map():
                self._selector.unregister(connection)
            code = os.waitstatus_to_exitcode(status)
            _answer(connection, bytes([code if code >= 0 else 128 - code]))
            connection.close()

    def _end_all(self) -> None:
        for planner in self._planners:
            os.kill(planner, signal.SIGTERM)


def _request(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    head, streams, _, _ = socket.recv_fds(connection, 4, 3)
    size = int.from_bytes(head, "little")
    text = b""
    while len(head) == 4 and len(text) < size <= MOST_BYTES:
        piece = connection.recv(size - len(text))
        if not piece:
            break
        text += piece
    try:
        if len(streams) != 3 or len(text) != size:
            raise ValueError("it is no request")
        return json.loads(text), streams
    except ValueError:
        for stream in streams:
            os.close(stream)
        raise


def _answer(connection: socket.socket, answer: bytes) -> None:
    # Whoever asked may have gone.
    with contextlib.suppress(OSError):
        connection.send(answer)
