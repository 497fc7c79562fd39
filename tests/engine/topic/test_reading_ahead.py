"""Large files of a local disk are opened one ahead of the one that is read."""

from __future__ import annotations

import pytest

import offsetlog
from offsetlog.engine.topic import reader


@pytest.fixture(autouse=True)
def orders(log):
    log.create_topic("orders", partitions=1, config={"segment.bytes": 1_048_576})
    with log.producer() as producer:
        for number in range(60):
            value = b"%03d" % number + bytes(200_000 if number < 50 else 5)
            producer.send("orders", value).result()
    log.maintain("orders", grace_ms=0)


def ahead(monkeypatch, least):
    """How many files are opened by another thread from now on."""
    monkeypatch.setattr(reader, "LOCAL_BYTES", least)
    handed = []
    true = reader.Reader._open

    def counted(self, piece, at_once):
        handed.append(piece.extent.base)
        return true(self, piece, at_once)

    monkeypatch.setattr(reader.Reader, "_open", counted)
    return handed


@pytest.mark.parametrize("least", [0, 300_000, 10**9])
def test_the_order_is_that_of_the_log(log, monkeypatch, least):
    handed = ahead(monkeypatch, least)
    seen = []
    with log.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([("orders", 0)])
        while len(seen) < 60:
            seen += [int(record.value[:3]) for record in consumer.poll(1.0, max_records=7)]
    assert seen == list(range(60))
    assert len(handed) > 5 and len(set(handed)) == len(handed), "each file is opened once"


def test_no_more_files_are_open_than_that(log, monkeypatch):
    handed = ahead(monkeypatch, 0)
    handle = log._topics.ever_created("orders")
    batches = handle.reader.read(0, 0, 60)
    next(batches)
    assert len(handed) <= 1 + reader.LOCAL_FILES
    batches.close()


def test_a_file_that_is_gone_is_named(log, monkeypatch, root):
    ahead(monkeypatch, 0)
    segments = sorted((root / "orders" / "partition=0").glob("*.parquet"))
    segments[2].unlink()
    with (
        pytest.raises(offsetlog.CorruptLogError, match=segments[2].name),
        log.consumer(auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([("orders", 0)])
        while consumer.poll(0):
            continue
