"""``check``: the whole judgement of a history."""

from __future__ import annotations

from collections.abc import Collection

from offsetlog.testing.history import batches, groups, reads, writes
from offsetlog.testing.history.collect import collect
from offsetlog.testing.history.events import History, read_history
from offsetlog.testing.history.faults import Fault, Found


def check(
    history: History,
    *,
    complete: bool = True,
    real_time: bool = True,
    compacted: Collection[str] = (),
    expulsions: bool = True,
) -> list[Fault]:
    """What is wrong with a history; an empty list for one that a log may have.

    ``complete``: after all sends were over, every partition was read from its log start to its
    end by somebody. Without it nothing is said of records that nobody saw.
    ``real_time``: all processes wrote the times of one clock.
    ``compacted``: topics where records may vanish but for the last of each key.
    ``expulsions``: members may be put out of a group while they stand still, so that two of
    them may *believe* for a while to own a partition; then only commits prove who did.
    """
    evidence = collect(read_history(history))
    may_vanish = {
        tp
        for tp, name in enumerate(evidence.partitions)
        if name.rpartition("/")[0] in set(compacted)
    }
    found = Found()
    writes.judge(evidence, found, complete, real_time, may_vanish)
    reads.judge(evidence, found, real_time, may_vanish)
    batches.judge(evidence, found, complete, may_vanish)
    groups.judge(evidence, found, real_time, expulsions)
    return found.all()
