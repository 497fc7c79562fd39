"""The lines of a history: what a process asked for, and what it was told.

A file is JSON lines by one process. The first is ``{"history":1,"process":"p"}``; then

- ``{"n":7,"at":12,"do":"send","with":{...}}``: operation 7 begins at 12 ns of the clock
- ``{"n":7,"at":15,"ok":{...}}``, ``"fail"`` or ``"unknown"``: how it ended
- ``{"n":8,"at":16,"did":"seek","with":{...}}``: something that is over at once

=========== ==================================================== =====================
operation   with                                                 ok
=========== ==================================================== =====================
send        records: {"topic/0": [value, ...]}, and perhaps      {"topic/0": [offset, ...]}
            batch: [app, seq] and sender
poll        consumer, group or null                              {"topic/0": [[offset, ...], [value, ...]]}
ends        topics are those of the answer                       {"topic/0": end offset}
commit      group, offsets {"topic/0": offset}                   null
committed   group                                                {"topic/0": offset or null}
reset       group, offsets {"topic/0": offset or null}           null
trim        starts {"topic/0": offset or null}                   null
seek        consumer, offsets {"topic/0": offset or null}
assign      consumer, group or null, partitions
revoke      the same: given up by its own will
lost        the same: put out by the others
=========== ==================================================== =====================

Rules of this module:

1. The lines of a process are in its own order; ``n`` joins the end of an operation to its
   beginning, so operations of several threads may overlap.
2. An operation without an end has an unknown outcome. So has a last line that was cut off.
3. A line that is something else is an error that names file and line.
"""  # noqa: E501

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from offsetlog.errors import CorruptLogError, InvalidRequestError

VERSION = 1
OPERATIONS = ("send", "poll", "ends", "commit", "committed", "reset", "trim")
HAPPENINGS = ("seek", "assign", "revoke", "lost")
OUTCOMES = ("ok", "fail", "unknown")
_MOST_BYTES = 64 * 1024 * 1024
_decode = json.JSONDecoder().raw_decode


class Event(NamedTuple):
    """One line."""

    process: str
    n: int
    at: int
    """Nanoseconds of a clock that all processes share."""
    step: str
    """``do``, ``did``, or an outcome."""
    kind: str
    """Of the operation; empty for an outcome."""
    what: Any


History = str | Path | Iterable[Event]
"""A folder of files, one file, or the events themselves."""


def partition_name(partition: tuple[str, int] | str) -> str:
    """``topic/0``: a topic's name has no slash."""
    return partition if isinstance(partition, str) else f"{partition[0]}/{partition[1]}"


def read_history(history: History) -> Iterator[Event]:
    """All events, process after process."""
    if isinstance(history, str | Path):
        for path in _files(Path(history)):
            yield from _read_file(path)
        return
    by_process: dict[str, list[Event]] = {}
    for event in history:
        by_process.setdefault(event.process, []).append(event)
    for events in by_process.values():
        yield from events


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = sorted(path.glob("*.jsonl"))
    if not found:
        raise InvalidRequestError(
            f"There is no history at {path}.", "It is a folder of .jsonl files of a Recorder."
        )
    return found


def _read_file(path: Path) -> Iterator[Event]:
    process: str | None = None
    with path.open("rb") as lines:
        number = 0
        while line := lines.readline(_MOST_BYTES):
            number += 1
            if not line.endswith(b"\n"):
                if len(line) == _MOST_BYTES:
                    raise _bad(path, number, "a line of more than 64 MiB")
                return  # Its writer was killed in the middle.
            try:
                told = _load(line.decode())
                if process is None:
                    process = _process(told)
                else:
                    yield _event(process, told)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise _bad(path, number, type(error).__name__) from None


def _load(text: str) -> Any:
    told, end = _decode(text)
    if text[end:] != "\n":
        raise ValueError("more than one value")
    return told


def _process(told: Any) -> str:
    if told["history"] != VERSION:
        raise ValueError("a newer version")
    return str(told["process"])


def _event(process: str, told: dict[str, Any]) -> Event:
    n, at = told["n"], told["at"]
    if type(n) is not int or type(at) is not int:
        raise ValueError("not numbers")
    if (kind := told.get("do")) is not None:
        return Event(process, n, at, "do", _known(kind, OPERATIONS), told["with"])
    if (kind := told.get("did")) is not None:
        return Event(process, n, at, "did", _known(kind, HAPPENINGS), told["with"])
    for outcome in OUTCOMES:
        if outcome in told:
            return Event(process, n, at, outcome, "", told[outcome])
    raise ValueError("no outcome")


def _known(kind: Any, kinds: tuple[str, ...]) -> str:
    if kind not in kinds:
        raise ValueError("an unknown operation")
    return str(kind)


def _bad(path: Path, line: int, why: str) -> CorruptLogError:
    return CorruptLogError(
        f"Line {line} of {path} is not a line of a history ({why}).",
        "Such files are written by a Recorder, one process each.",
    )
