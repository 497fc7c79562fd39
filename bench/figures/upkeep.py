"""What upkeep asks of an object store, for each append that it looks after and for each round.

Each call of our own storage port is a request. PUTs, lists and the like cost twelve times what a
GET does; what is asked for each append is the difference between a round over many and one over
few, so that what a round costs anyway is a figure of its own.

1. ``upkeep_puts`` is of a topic with retention: each entry needs its stub, one PUT.
2. ``upkeep_puts_kept`` is of small appends that are kept forever: they keep their rows.
3. ``upkeep_written`` is write amplification: bytes that upkeep wrote for each byte that appends
   wrote, after many rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

from bench.counting_store import CountingStore
from bench.figure import Case, Rig, Setting, at_most

PARTITIONS = 12
VALUE_BYTES = 50
DEAR = ("put", "create", "list", "folders")
FIGURES = (
    at_most("upkeep_puts", 1.02, "requests", "PUT or list for each append, 7 days kept"),
    at_most("upkeep_gets", 2.5, "requests", "GET for each append, 7 days kept"),
    at_most(
        "upkeep_puts_kept", 0.02, "requests", "PUT or list for each small append, kept forever"
    ),
    at_most("upkeep_idle_round", 20, "requests", "a round in which nothing is to be done"),
    at_most("upkeep_written", 3.0, "x", "bytes that it writes for each byte of appends, 24 rounds"),
)
_roots = count()


class _Upkeep:
    def __init__(self, setting: Setting) -> None:
        self._many = setting.pick(512, 128)
        self._rounds = setting.pick(24, 24)
        self._each = setting.pick(64, 12)

    def ours(self) -> dict[str, float]:
        week = {"retention.ms": 7 * 86_400_000}
        large, large_gets, idle = self._for_each_append(1_000, week)
        small, _, _ = self._for_each_append(20, {"retention.ms": -1})
        return {
            "upkeep_puts": large,
            "upkeep_gets": large_gets,
            "upkeep_puts_kept": small,
            "upkeep_idle_round": idle,
            "upkeep_written": self._written(),
        }

    def peer(self) -> dict[str, float]:
        return {}

    def _for_each_append(self, records: int, config: dict[str, Any]) -> tuple[float, float, float]:
        """(dear requests, others) for each append, and all of an idle round."""
        few, many = self._many // 4, self._many
        counted = []
        for appends in (few, many):
            store, log = _opened(config)
            _send(log, appends, records)
            store.reset()
            log.maintain("t", grace_ms=0)
            dear = sum(store.calls[kind] for kind in DEAR)
            free = store.calls["delete"]
            counted.append((dear, store.total - dear - free))
            log.maintain("t")
            store.reset()
            log.maintain("t")
            idle = store.total
            log.close()
        dear, others = ((more - less) / (many - few) for less, more in zip(*counted, strict=True))
        return dear, others, idle

    def _written(self) -> float:
        """Segments, stubs, snapshots and notes, for each byte of entries."""
        store, log = _opened({"retention.ms": -1})
        appended = written = 0
        for _ in range(self._rounds):
            store.reset()
            _send(log, self._each, 200)
            appended += store.bytes_up
            store.reset()
            log.maintain("t", grace_ms=0)
            written += store.bytes_up
        log.close()
        return written / appended


def _opened(config: dict[str, Any]) -> tuple[CountingStore, Any]:
    from offsetlog.client.log import Log
    from offsetlog.engine.env import REAL
    from offsetlog.storage.open import open_store

    store = CountingStore(open_store(f"memory://bench-upkeep-{next(_roots)}"))
    store.is_local = False  # As a server: what costs is the request.
    # No time passes: how many snapshots fall among the appends must not depend on the machine.
    log = Log(store, env=REAL._replace(monotonic=lambda: 0.0))
    log.create_topic("t", partitions=PARTITIONS, config=config)
    return store, log


def _send(log: Any, appends: int, records: int) -> None:
    """Values that no compressor finds twice."""
    partition = pa.array((np.arange(records) % PARTITIONS).astype(np.int32))
    rng = np.random.default_rng(next(_roots))
    with log.producer() as producer:
        for _ in range(appends):
            text = rng.integers(32, 127, records * VALUE_BYTES, np.uint8).tobytes()
            values = [text[VALUE_BYTES * i :][:VALUE_BYTES] for i in range(records)]
            table = pa.table({"partition": partition, "value": pa.array(values, pa.binary())})
            producer.send_arrow("t", table).result()


@contextmanager
def _rig(setting: Setting) -> Iterator[Rig]:
    yield _Upkeep(setting)


CASES = (Case("upkeep", FIGURES, _rig, warmups=0),)
