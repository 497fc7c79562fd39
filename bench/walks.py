"""``python -m bench.walks``: how far one call walks through our own code.

What is counted, in the calling thread, of one warm call (the paths that it takes have been taken
a few times before):

- *functions*: distinct functions of ``offsetlog`` and ``pyspark_offsetlog`` that were entered.
  A comprehension, generator expression or lambda counts as part of the function that holds it;
  functions that a dataclass or a named tuple wrote for itself are not ours.
- *modules*: distinct files that they lie in.
- *changes*: how often the next function entered lies in another file than the one before it.

``--list`` names the functions in the order in which they were first entered.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import offsetlog
from offsetlog.client.consumer import Consumer
from offsetlog.client.log import Log

HERE = Path(offsetlog.__file__).resolve().parent
PARTS = ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<lambda>")
GOALS = {
    "send().result()": (60, 12, 30),
    "latestOffset": (50, 12, 30),
    "partitions": (40, 10, 30),
    "reset": (60, 14, None),
    "commit": (None, None, None),
    "look": (None, None, None),
}


class Walk(NamedTuple):
    functions: list[str]
    modules: int
    changes: int
    calls: int


def _ours(code: CodeType) -> str | None:
    """The file of a function of ours, from the package on; None for any other."""
    path = code.co_filename
    for package in ("offsetlog", "pyspark_offsetlog"):
        head, found, tail = path.rpartition(f"/{package}/")
        if found and (head == str(HERE.parent) or Path(head).is_relative_to(HERE.parent)):
            return f"{package}/{tail}"
    return None


def walk(call: Callable[[], object]) -> Walk:
    """What ``call`` enters."""
    entered: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        file = _ours(code)
        if file is not None:
            name = code.co_qualname if sys.version_info >= (3, 11) else code.co_name
            while name.rpartition(".")[2] in PARTS:
                name = name.removesuffix(name.rpartition(".")[2]).removesuffix(".<locals>.")
                name = name.removesuffix(".")
            entered.append((file, name))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    functions = dict.fromkeys(f"{file}:{name}" for file, name in entered)
    files = [file for file, _ in entered]
    changes = sum(a != b for a, b in zip(files, files[1:], strict=False))
    return Walk(list(functions), len(set(files)), changes, len(entered))


def _send(stack: ExitStack, root: str) -> Callable[[], object]:
    log = stack.enter_context(offsetlog.open(root))
    log.create_topic("sent", partitions=1)
    producer = stack.enter_context(log.producer())
    return lambda: producer.send("sent", b"value").result()


def _group(stack: ExitStack, root: str) -> tuple[Log, Consumer]:
    """A log with a record, and a member of a group that has read it."""
    log = stack.enter_context(offsetlog.open(root))
    log.create_topic("put", partitions=2)
    with log.producer() as producer:
        producer.send("put", b"value", partition=0).result()
    settings: Any = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = stack.enter_context(log.consumer(group="g", topics=["put"], **settings))
    consumer.poll(timeout=5)
    consumer.commit()
    return log, consumer


def _commit(stack: ExitStack, root: str) -> Callable[[], object]:
    _, consumer = _group(stack, root)
    return lambda: consumer.commit({("put", 0): 1})


def _look(stack: ExitStack, root: str) -> Callable[[], object]:
    log, _ = _group(stack, root)
    return lambda: log.offsets_table.look()


def _reset(stack: ExitStack, root: str) -> Callable[[], object]:
    log, consumer = _group(stack, root)
    consumer.close()
    group = log.group("g")
    return lambda: group.reset("put", to="earliest", dry_run=False)


def _query(root: str) -> tuple[Any, Callable[[], None]]:
    from pyspark_offsetlog.datasource import OffsetLogDataSource

    log = offsetlog.open(root)
    log.create_topic("read", partitions=2)
    producer = log.producer()

    def one() -> None:
        producer.send("read", b"value", partition=0).result()

    one()
    options = {
        "path": root,
        "subscribe": "read",
        "startingOffsets": "earliest",
        "group.id": "query",
    }
    source = OffsetLogDataSource(options)
    return source.streamReader(source.schema()), one


def _batches(root: str) -> dict[str, Walk]:
    """The walks of a micro-batch: one record more each time, in the order in which Spark calls."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    reader, one = _query(root)
    start = json.loads(json.dumps(reader.initialOffset()))
    walks: dict[str, Walk] = {}
    for _ in range(5):
        one()
        ends: list[Any] = []
        at = start
        walks["latestOffset"] = walk(
            lambda at=at, ends=ends: ends.append(reader.latestOffset(at, ReadAllAvailable()))
        )
        end = json.loads(json.dumps(ends[0]))
        walks["partitions"] = walk(lambda at=at, end=end: reader.partitions(at, end))
        reader.commit(end)
        start = end
    reader._run.stop()
    return walks


def measure() -> dict[str, Walk]:
    """Each walk, once warm."""
    walks: dict[str, Walk] = {}
    with tempfile.TemporaryDirectory() as folder:
        rigs = {"send().result()": _send, "commit": _commit, "look": _look, "reset": _reset}
        for name, rig in rigs.items():
            with ExitStack() as stack:
                call = rig(stack, f"{folder}/{rig.__name__}")
                for _ in range(5):
                    call()
                walks[name] = walk(call)
        walks |= _batches(f"{folder}/query")
    return walks


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.walks", description=__doc__)
    parser.add_argument("--list", action="store_true", help="name the functions")
    options = parser.parse_args(argv)
    walks = measure()
    print(f"{'call':<18}{'functions':>10}{'modules':>9}{'changes':>9}{'calls':>7}   goal")
    for name, goal in GOALS.items():
        w = walks[name]
        said = "/".join("-" if n is None else str(n) for n in goal)
        print(f"{name:<18}{len(w.functions):>10}{w.modules:>9}{w.changes:>9}{w.calls:>7}   {said}")
        if options.list:
            print("".join(f"    {function}\n" for function in w.functions), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
