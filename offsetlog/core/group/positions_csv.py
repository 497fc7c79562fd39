"""Positions as a file of comma-separated values: what a reset exports and takes.

Rules of this module:

1. The form is Kafka's: ``topic,partition,offset`` a line, or ``group,topic,partition,offset``;
   no header is written, and one is passed over when read.
2. A wrong line is an error that names it by its number, and then no line counts.
3. What is exported reads back as the same.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from typing import NamedTuple

from offsetlog.core.group.facts import AnyPartition, Partition
from offsetlog.errors import InvalidRequestError
from offsetlog.values import MAX_OFFSET, MAX_PARTITIONS, check_name

_HEADERS = (["topic", "partition", "offset"], ["group", "topic", "partition", "offset"])
_FORM = "A line is topic,partition,offset or group,topic,partition,offset."


class PositionRow(NamedTuple):
    number: int
    topic: str
    partition: int
    offset: int


def format_positions(offsets: Mapping[AnyPartition, int], group: str | None = None) -> str:
    """The file's text, in order of topic and partition; with ``group`` in front if given."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for (topic, partition), offset in sorted(offsets.items()):
        row: list[str | int] = [topic, partition, offset]
        writer.writerow(row if group is None else [group, *row])
    return out.getvalue()


def parse_positions(text: str, group: str) -> tuple[PositionRow, ...]:
    """The lines that are for ``group``: all those that name no group, or this one."""
    lines: dict[Partition, PositionRow] = {}
    others: set[str] = set()
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    number, first = 1, True
    while True:
        try:
            fields = [field.strip() for field in next(reader)]
        except StopIteration:
            break
        except csv.Error as error:
            raise _wrong(number, f"it is not valid CSV: {error}") from error
        here, number = number, reader.line_num + 1
        if not any(fields) or (first and [f.lower() for f in fields] in _HEADERS):
            first = first and not any(fields)
            continue
        first = False
        owner, line = _line(here, fields)
        if owner is not None and owner != group:
            others.add(owner)
            continue
        partition = (line.topic, line.partition)
        if partition in lines:
            raise _wrong(
                here,
                f"partition {line.partition} of topic {line.topic!r} is in line "
                f"{lines[partition].number} already",
            )
        lines[partition] = line
    if not lines:
        seen = f" It is for {', '.join(sorted(others))}." if others else ""
        raise InvalidRequestError(f"The file has no line for the group {group!r}.{seen}", _FORM)
    return tuple(lines.values())


def _line(number: int, fields: list[str]) -> tuple[str | None, PositionRow]:
    if len(fields) not in (3, 4):
        raise _wrong(number, f"it has {len(fields)} fields")
    owner = fields[0] if len(fields) == 4 else None
    topic, partition, offset = fields[-3:]
    try:
        check_name(topic)
    except InvalidRequestError as error:
        raise _wrong(number, f"{topic!r} is not a topic's name") from error
    return owner, PositionRow(
        number,
        topic,
        _number(number, "partition", partition, MAX_PARTITIONS),
        _number(number, "offset", offset, MAX_OFFSET),
    )


def _number(number: int, what: str, text: str, limit: int) -> int:
    if not re.fullmatch(r"\d{1,19}", text, re.ASCII) or int(text) > limit:
        raise _wrong(number, f"{text!r} is not {'an' if what == 'offset' else 'a'} {what}")
    return int(text)


def _wrong(number: int, why: str) -> InvalidRequestError:
    return InvalidRequestError(f"Line {number} of the file is wrong: {why}.", _FORM)
