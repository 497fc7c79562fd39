"""How many bytes a batch takes.

Invariants:

1. No limit makes a batch empty while there is something to read: at least one record of each
   partition that has any.
2. A limit in bytes is kept as far as sizes are known without reading records.
"""

from __future__ import annotations

from offsetlog.core.topic.plan import estimate_bytes
from pyspark_offsetlog.source.next_batch import BatchPlan, Look
from pyspark_offsetlog.source.subscription import SubscribedTopics


def limit_bytes(
    max_bytes: int | None, topics: SubscribedTopics, look: Look, plan: BatchPlan
) -> BatchPlan:
    """The same batch of about ``max_bytes``."""
    if max_bytes is None:
        return plan
    sizes = {
        tp: estimate_bytes(look.states[tp.topic], tp.partition, plan.begin[tp], end)
        for tp, end in plan.end.items()
        if end > plan.begin[tp]
    }
    total = sum(sizes.values())
    if total <= max_bytes:
        return plan
    ends = dict(plan.end)
    for tp, size in sizes.items():
        reader = topics.topic(tp.topic).reader
        share = max(1, max_bytes * size // total)
        left, at = share, plan.begin[tp]
        for piece in reader.plan(tp.partition, at, plan.end[tp], max_bytes=share):
            if piece.bytes > left:
                at = piece.start + left * (piece.end - piece.start) // piece.bytes
                break
            left, at = left - piece.bytes, piece.end
        ends[tp] = min(plan.end[tp], max(plan.begin[tp] + 1, at))
    return plan._replace(end=ends)
