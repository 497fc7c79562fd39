"""How much of what is there a batch takes.

Invariants:

1. No limit makes a batch empty while there is something to read: at least one record of each
   partition that has any.
2. Limits in bytes are kept as far as sizes are known without reading.
"""

from __future__ import annotations

from offsetlog.core.topic import plan as fetch
from pyspark_offsetlog.source.offsets import Positions, share_out
from pyspark_offsetlog.source.subscription import SubscribedTopics


def limit_records(most: int | None, begin: Positions, until: Positions) -> Positions:
    """``until``, moved back so that about ``most`` records are read."""
    sizes = {tp: max(0, end - begin[tp]) for tp, end in until.items()}
    if most is None or sum(sizes.values()) <= most:
        return until
    shares = share_out(most, sizes)
    return {tp: begin[tp] + shares[tp] for tp in until}


def limit_bytes(
    most: int | None, topics: SubscribedTopics, begin: Positions, until: Positions
) -> Positions:
    """The same in bytes."""
    if most is None:
        return until
    states = topics.states
    sizes = {
        tp: fetch.estimate_bytes(states[tp.topic], tp.partition, begin[tp], end)
        for tp, end in until.items()
        if end > begin[tp]
    }
    total = sum(sizes.values())
    if total <= most:
        return until
    out = dict(until)
    for tp, size in sizes.items():
        reader = topics.handle(tp.topic).reader
        share = max(1, most * size // total)
        left, at = share, begin[tp]
        for piece in reader.plan(tp.partition, at, until[tp], max_bytes=share):
            used = piece.bytes
            if used > left:
                at = piece.start + left * (piece.end - piece.start) // used
                break
            left, at = left - used, piece.end
        out[tp] = min(until[tp], max(begin[tp] + 1, at))
    return out
