"""Whether a peer has stopped, as far as its watcher itself saw.

Rules of this module:

1. Only the watcher's own clock counts, and only differences of it. A heartbeat says nothing
   about time: it is just something that changes.
2. Silence is counted from look to look, and only where both looks succeeded: a watcher that
   could not look knows nothing. A gap longer than ``gap_ms`` counts as ``gap_ms``, since then it
   was the watcher that slept.
3. After the whole session timeout of silence a peer is suspected; only one more successful
   look, which finds it still silent, lets it be expelled.
"""

from __future__ import annotations

from typing import NamedTuple


class HeartbeatReading(NamedTuple):
    """One look at a peer's heartbeat. ``beat`` is its content; None: there is none yet."""

    at_ms: int
    beat: str | None = None
    failed: bool = False


class PeerWatch(NamedTuple):
    """What a watcher knows of one peer's membership."""

    beat: str | None = None
    silent_ms: int = 0
    seen_at: int | None = None
    """When the last look was, if it succeeded."""
    suspected: bool = False
    expel: bool = False


UNWATCHED = PeerWatch()


def observe(watch: PeerWatch, look: HeartbeatReading, session_ms: int, gap_ms: int) -> PeerWatch:
    """What is known after one more look. ``expel``: it may be recorded now. ``suspected``:
    look again at once. With a ``session_ms`` of 0 neither is ever set."""
    if look.failed:
        return watch._replace(seen_at=None, expel=False)
    if watch == UNWATCHED or look.beat != watch.beat:
        return PeerWatch(look.beat, 0, look.at_ms)
    gap = 0 if watch.seen_at is None else min(max(look.at_ms - watch.seen_at, 0), gap_ms)
    silent = watch.silent_ms + gap
    over = 0 < session_ms <= silent
    return PeerWatch(look.beat, silent, look.at_ms, over, over and watch.suspected)
