"""The two data sets, laid down once a run in every form that a figure reads.

1. All forms hold the same rows, in the same order within a partition, with the same keys,
   values, partitions and times.
2. ``input``: what the sinks are fed from, uncompressed Parquet in the order in which rows came,
   with the partition of each as a column for the peers that don't hash.
3. ``scan``: one snappy file a partition with key, value, partition and time. The offset is the
   row's place in its file.
4. ``log``: our topic, written by the Python client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.figure import Setting
from bench.spark.session import folder
from bench.suite import SUITE
from bench.workload import events, random_table, timed

if TYPE_CHECKING:
    import pyarrow as pa

PARTITIONS = 8
TOPIC = "orders"
CHUNK = 500_000
"""Rows of one send and of one input file."""


@dataclass(frozen=True)
class Kind:
    """A data set: how many rows, and how some of them are made."""

    name: str
    full: int
    short: int
    make: Callable[[int, int], pa.Table]

    def rows(self, setting: Setting) -> int:
        return setting.pick(self.full, self.short)


RANDOM = Kind("random", 10_000_000, 40_000, lambda rows, seed: timed(random_table(rows, seed)))
EVENTS = Kind("events", 5_000_000, 20_000, events)
KINDS = (RANDOM, EVENTS)
FEWER = Kind("fewer", 2_000_000, 40_000, RANDOM.make)
"""For a store that is reached through a relay."""


@dataclass(frozen=True)
class Rows:
    """Where the forms of a data set lie."""

    kind: Kind
    count: int
    place: Path

    @property
    def root(self) -> str:
        """Our log; its topic is ``TOPIC``."""
        return f"file://{self.place / 'log'}"

    @property
    def scan(self) -> str:
        return str(self.place / "scan")

    @property
    def input(self) -> str:
        return str(self.place / "input")


def rows_of(kind: Kind, setting: Setting) -> Rows:
    """The data set, made at the first call."""
    return SUITE.once(f"rows {kind.name}", lambda: _made(kind, setting))


def _made(kind: Kind, setting: Setting) -> AbstractContextManager[Rows]:
    made = Rows(kind, kind.rows(setting), folder(setting) / kind.name)
    for name in ("scan", "input"):
        (made.place / name).mkdir(parents=True)
    _write(made)
    return nullcontext(made)


def chunks(kind: Kind, count: int) -> Iterator[pa.Table]:
    """The rows, some at a time, with the partition of each."""
    import pyarrow as pa

    from offsetlog.format.partitioner import partitions_of

    for seed, begin in enumerate(range(0, count, CHUNK)):
        table = kind.make(min(CHUNK, count - begin), seed)
        placed = partitions_of(table["key"], PARTITIONS).astype(np.int32)
        yield table.append_column("partition", pa.array(placed))


def _write(made: Rows) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    import offsetlog

    with offsetlog.open(made.root) as log, ExitStack() as files:
        log.create_topic(TOPIC, partitions=PARTITIONS, config={"retention.ms": -1})
        producer = files.enter_context(log.producer())
        scans: dict[int, pq.ParquetWriter] = {}
        for number, table in enumerate(chunks(made.kind, made.count)):
            plain = table.set_column(
                2, "timestamp", table["timestamp"].cast(pa.timestamp("us", "UTC"))
            )
            pq.write_table(
                plain,
                f"{made.input}/{number:04d}.parquet",
                compression="none",
                use_dictionary=False,
            )
            placed = table["partition"].to_numpy()
            for partition in range(PARTITIONS):
                if partition not in scans:
                    scans[partition] = files.enter_context(
                        pq.ParquetWriter(
                            f"{made.scan}/{partition}.parquet", plain.schema, use_dictionary=False
                        )
                    )
                scans[partition].write_table(plain.take(np.flatnonzero(placed == partition)))
            producer.send_arrow(TOPIC, table).result()
