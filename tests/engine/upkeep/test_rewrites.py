"""What consolidation reads of entries at once."""

from __future__ import annotations

import pyarrow as pa
import pytest

import offsetlog
from offsetlog.engine.topic import reader
from offsetlog.engine.upkeep import maintenance

ALLOWED = 20_000


class Sorted(reader.InlineRows):
    """Arrow refuses to take more than 2 GiB of a column; here less."""

    def __init__(self, tables: list[pa.Table]) -> None:
        if sum(table.nbytes for table in tables) > 2 * ALLOWED:
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")
        super().__init__(tables)


@pytest.mark.parametrize("size", [100, 1000])
def test_a_run_of_more_than_arrow_sorts_at_once_is_rewritten_too(tmp_path, monkeypatch, size):
    """With ``segment.bytes`` above 2 GiB ``maintain`` ended with Arrow's error, each time."""
    monkeypatch.setattr(reader, "InlineRows", Sorted)
    monkeypatch.setattr(maintenance, "MAX_SORTED_BYTES", ALLOWED)
    with offsetlog.open(str(tmp_path)) as log:
        log.create_topic("orders", partitions=2)
        sent = []
        with log.producer() as producer:
            for number in range(60):
                sent.append(b"%03d" % number + bytes(size))
                producer.send("orders", sent[-1], partition=number % 2).result()
        [maintained] = log.maintain("orders", grace_ms=0)
        assert (maintained.rewritten_files, maintained.new_segments) == (60, 2)
        with log.consumer(topics=["orders"], auto_offset_reset="earliest") as consumer:
            received = {}
            while records := consumer.poll(timeout=0):
                received |= {(r.partition, r.offset): r.value for r in records}
    assert received == {(n % 2, n // 2): value for n, value in enumerate(sent)}
