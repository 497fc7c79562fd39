"""What a sink wrote, read back with the Python client: the tests of the sink need no source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import offsetlog


def records(root: Path | str, topic: str) -> list[Any]:
    """All records of a topic, partition after partition in the order of their offsets; the log
    is sound, and offsets begin at 0 and have no gap."""
    with offsetlog.open(str(root)) as log:
        [report] = log.verify(topic)
        assert report.faults == ()
        ends = log.topic(topic).end_offsets()
        found = []
        with log.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, partition) for partition in ends])
            while some := consumer.poll(timeout=0, max_records=100_000):
                found += some
    for partition, end in ends.items():
        assert [r.offset for r in found if r.partition == partition] == list(range(end))
    return sorted(found, key=lambda record: (record.partition, record.offset))


def values(root: Path | str, topic: str) -> list[bytes | None]:
    """All values, sorted."""
    return sorted((r.value for r in records(root, topic)), key=lambda value: value or b"")


def write(frame: Any, root: Path | str, topic: str | None = None, **options: Any) -> None:
    writer = frame.write.format("offsetlog").mode(options.pop("mode", "append"))
    if topic is not None:
        writer = writer.option("topic", topic)
    writer.options(**options).save(str(root))


def refused(frame: Any, root: Path | str, topic: str | None = None, **options: Any) -> str:
    """The message of a write that must fail: it is told plainly."""
    with pytest.raises(Exception) as error:  # noqa: PT011 - Spark has a class for each place
        write(frame, root, topic, **options)
    told = str(error.value)
    assert "Traceback" not in told, told
    return told
