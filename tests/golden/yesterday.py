"""What an earlier commit of this library wrote, and what must be read from it for ever.

A story is an archive of files, and beside it what they mean, as that commit itself told it:
``e1a20b5/<story>.tar.gz`` and ``.json``. The scripts ``make_*.py`` made them.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

COMMIT = "e1a20b5"
HERE = Path(__file__).parent / COMMIT
WRITTEN_AT = 1_795_082_400
"""The time of all files, in seconds: a while ago, as of a root that was copied."""
SHOWN = 40
"""Bytes of a value that are shown as they are; of a longer one, its sum."""


def meaning(story: str) -> dict[str, Any]:
    return dict(json.loads((HERE / f"{story}.json").read_text()))


def unpack(story: str, place: Path) -> Path:
    """The files of a story, as a user would find them who brings back a folder."""
    with tarfile.open(HERE / f"{story}.tar.gz") as archive:
        archive.extractall(place, filter="data")
    return place


def files_of(story: str) -> Iterator[tuple[str, bytes]]:
    """The same files one by one, for a place that is no folder."""
    with tarfile.open(HERE / f"{story}.tar.gz") as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                yield member.name, file.read()


def pack(story: str, files: Iterable[tuple[str, bytes]], means: dict[str, Any]) -> None:
    """An archive in which nothing but the files says when, where and by whom it was made."""
    HERE.mkdir(exist_ok=True)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in sorted(files):
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(data), WRITTEN_AT
            archive.addfile(member, io.BytesIO(data))
    (HERE / f"{story}.tar.gz").write_bytes(gzip.compress(out.getvalue(), 9, mtime=0))
    text = json.dumps(means, indent=None, sort_keys=True, separators=(",", ":"))
    # A line for each topic, group and so on, so that a difference can be looked at.
    (HERE / f"{story}.json").write_text(text.replace("},", "},\n") + "\n")


def below(place: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(place.rglob("*")):
        if path.is_file():
            yield path.relative_to(place).as_posix(), path.read_bytes()


# --- what a log says, as JSON can hold it ------------------------------------------------------


def shown(data: bytes | None) -> str | None:
    if data is None:
        return None
    if len(data) > SHOWN:
        return f"{len(data)} bytes {hashlib.sha256(data).hexdigest()}"
    return data.decode("latin-1")


def records(log: Any, topic: str) -> list[list[Any]]:
    """``[partition, offset, key, value, headers, timestamp, timestamp type]`` of all records."""
    found = []
    with log.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, p) for p in log.topic(topic).end_offsets()])
        while some := consumer.poll(timeout=0, max_records=100_000):
            found += some
    return [
        [r.partition, r.offset, shown(r.key), shown(r.value),
         [[name, shown(value)] for name, value in r.headers], r.timestamp, r.timestamp_type]
        for r in sorted(found, key=lambda r: (r.partition, r.offset))
    ]  # fmt: skip


def topics(log: Any) -> dict[str, Any]:
    return {name: topic(log, name) for name in log.topics()}


def topic(log: Any, name: str) -> dict[str, Any]:
    it = log.topic(name)
    return {
        "config": dict(it.describe().config),
        "begin": by_text(it.beginning_offsets()),
        "end": by_text(it.end_offsets()),
        "records": records(log, name),
    }


def by_text(offsets: dict[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def groups(log: Any) -> dict[str, Any]:
    return {name: group(log, name) for name in log.groups()}


def group(log: Any, name: str) -> dict[str, Any]:
    it = log.group(name)
    told = it.describe()
    return {
        "state": told.state,
        "generation": told.generation,
        "resets": told.resets,
        "positions": [[*tp, *said] for tp, said in it.committed().items()],
        "members": [
            [m.member, m.client, list(m.topics), m.strategy, m.session_timeout_ms,
             [list(tp) for tp in m.partitions]]
            for m in told.members
        ],
    }  # fmt: skip
