"""The worlds that are explored, and the rules that can be taken away, each with its world."""

from __future__ import annotations

from tests.model.protocol import Setting

OWN, KEY = (True, False), (False, False)
OWN_SEGMENT, KEY_SEGMENT = (True, True), (False, True)

SENDERS = Setting("senders", (OWN, KEY), 2, (), 1, 1, 5)
CROWD = Setting("crowd", (OWN, KEY, OWN), 1, (), 1, 0, 5)
FORGETTING = Setting("forgetting", (OWN, KEY), 1, (("expire",),), 1, 1, 5)
MOVING = Setting("moving", (OWN, KEY), 2, (("replace", "stub"), ("replace",)), 0, 0, 4)
FREEING = Setting("freeing", (OWN, KEY), 1, (("replace", "stub"),), 1, 0, 4)
COLLECTING = Setting("collecting", (OWN_SEGMENT, KEY), 1, (("replace",), ("collect",)), 0, 1, 4)
SEGMENTS = Setting("segments", (OWN_SEGMENT, KEY_SEGMENT), 1, (("collect", "collect"),), 1, 0, 4)
LIVES = Setting("lives", (OWN, KEY), 1, (("delete", "create"), ("delete",)), 1, 0, 4)
ALL = (SENDERS, CROWD, FORGETTING, MOVING, COLLECTING, SEGMENTS, LIVES, FREEING)

RULES = {
    "duplicate appends": SENDERS,
    "forgotten appends": FORGETTING,
    "deleted appends": LIVES,
    "condemned appends": SEGMENTS,
    "condemned replaces": COLLECTING,
    "superseded deletes": LIVES,
    "acknowledged after the fold": SENDERS,
    "no answer is no conflict": SENDERS,
    "a retry keeps its number": SENDERS,
    "the forgotten look for what landed": FORGETTING,
    "names stay taken": FREEING,
    "rows move before they go": MOVING,
    "a void replace moves nothing": MOVING,
    "the list is of a state with the collect": SEGMENTS,
    "the horizon": SEGMENTS,
}
