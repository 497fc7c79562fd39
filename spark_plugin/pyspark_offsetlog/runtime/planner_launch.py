"""What Spark starts as the Python of a stream's planner: it lets the planner server fork one, or
starts one itself from compiled files.

Spark starts one for each query, and lets it import PySpark from an archive, which keeps no compiled
files: that takes three quarters of the time before the first batch. Invariants:

1. Only the standard library is imported here, before it is decided where PySpark comes from.
2. What Spark gives its Python (environment, folder, standard streams, module) the planner has, too.
3. Without a server the planner starts in this process: nothing rests on it.
4. It is the installed PySpark only where that is the archive's very version.

``planner_launch.py SOCKET -m MODULE``; with ``--serve`` in place of the module it is the server.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import json
import os
import runpy
import socket
import sys
import time
import zipimport

SERVE = "--serve"
SCRIPT = "python"
"""By which Spark starts this, beside the socket."""
CONNECT_SECONDS = 1.0
"""So long the server may take to listen, which it does before it loads anything."""
ARCHIVES = ("pyspark.zip", "-src.zip")
STARTED, REFUSED = b"+", b"-"


def prefer_installed() -> None:
    """Let PySpark be imported from where it is installed."""
    archives = [path for path in sys.path if path.endswith(ARCHIVES)]
    others = [path for path in sys.path if path not in archives]
    found = [importlib.machinery.PathFinder.find_spec(name, others) for name in ("pyspark", "py4j")]
    try:
        [archive] = [path for path in archives if path.endswith(ARCHIVES[0])]
        version = zipimport.zipimporter(archive).get_data(f"{archive}/pyspark/version.py")
        [folder] = [os.path.dirname(str(spec and spec.origin)) for spec in found[:1]]
        with open(os.path.join(folder, "version.py"), "rb") as file:
            is_same = file.read() == version
    except (ImportError, OSError, ValueError):
        return
    if is_same and None not in found:
        sys.path[:] = others


def ask_server(path: str, module: str) -> int | None:
    """Let the server fork a planner, and wait for its end; its exit status, or None if there is no
    planner."""
    server = _connected(path)
    if server is None:
        return None
    request = {"module": module, "environment": dict(os.environ), "folder": os.getcwd()}
    text = json.dumps(request).encode()
    with server:
        try:
            socket.send_fds(server, [len(text).to_bytes(4, "little")], [0, 1, 2])
            server.sendall(text)
            if server.recv(1) != STARTED:
                return None
        except OSError:
            return None
        try:
            return int.from_bytes(server.recv(1) or b"\1", "little")
        except OSError:
            return 1


def _connected(path: str) -> socket.socket | None:
    end = time.monotonic() + CONNECT_SECONDS
    while True:
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            server.connect(path)
            return server
        except OSError:
            server.close()
        if time.monotonic() > end or not os.path.isdir(os.path.dirname(path)):
            return None
        time.sleep(0.01)


def _listening(path: str) -> socket.socket:
    """A socket for this user alone."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    previous = os.umask(0o177)
    try:
        listener.bind(path)
    finally:
        os.umask(previous)
    listener.listen()
    return listener


def remove_folder(folder: str) -> None:
    """Remove the folder of a server whose JVM is gone, which could not, as the socket was in it;
    with the JVM's script, if that was killed."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(folder, SCRIPT))
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def main(arguments: list[str]) -> None:
    path, *rest = arguments
    if rest == [SERVE]:
        # Those who ask while it loads wait for it, as they would for a start of their own.
        listener = _listening(path)
        prefer_installed()
        from pyspark_offsetlog.runtime.planner_server import serve

        try:
            serve(listener)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)
        remove_folder(os.path.dirname(path))
        return
    _, module, *more = rest
    status = ask_server(path, module)
    if status is not None:
        sys.exit(status)
    prefer_installed()
    sys.argv = [module, *more]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
