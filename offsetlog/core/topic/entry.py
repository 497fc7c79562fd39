"""What an entry of a topic's chain says.

Rules of this module:

1. An entry is a proposal. It holds counts, never offsets, and not its own number, so its
   bytes are good at any place in the chain.
2. Values only: how they become bytes is ``offsetlog.format``'s business, whether they count
   is ``offsetlog.core.topic.fold``'s.
3. Ranges are half-open, times are milliseconds since the epoch.
4. An entry is written under the least rules that know all that it says (``rules_of``), so a topic
   that uses nothing of newer rules is read by older libraries.
"""

from __future__ import annotations

from typing import NamedTuple

FIRST_RULES = 1
RULES_VERSION = 2
"""Version of the rules by which entries are judged. An entry of a newer one stops the fold."""

CREATE_TIME, LOG_APPEND_TIME = 0, 1
"""Whose time records have: their senders', or the append's."""


class SegmentRef(NamedTuple):
    """A segment's identity. Its path follows from these and its place."""

    born: int
    """The tip that its author believed in before writing it."""
    uid: str
    """32 hex digits."""
    size: int
    footer_bytes: int
    """Length of the Parquet footer with its trailing eight bytes."""
    footer_xxh3: str
    """XXH3-64 of those ``footer_bytes``, which hold the sums of all others: 16 hex digits."""


class Part(NamedTuple):
    """A run of records of one partition in an append, in their order."""

    partition: int
    records: int
    bytes: int
    min_ts: int
    max_ts: int
    segment: SegmentRef | None = None
    """None: the rows are in the entry itself, in the order of its parts."""


class ReplacedRun(NamedTuple):
    """A range of one partition and the segments that hold it from now on, in order."""

    partition: int
    start: int
    end: int
    pieces: tuple[ReplacementPiece, ...]


class ReplacementPiece(NamedTuple):
    """A rewritten segment. It stores its records' offsets; compaction and erasure leave gaps."""

    base: int
    end: int
    records: int
    bytes: int
    min_ts: int
    max_ts: int
    ts_type: int
    segment: SegmentRef | None = None
    """None: there is no record in [base, end), and so no file."""


class Create(NamedTuple):
    topic: str
    partitions: int
    config: tuple[tuple[str, str], ...]
    expected_head: int
    """Number of the last counted create, configure or delete that the author saw; -1: none."""


class Configure(NamedTuple):
    partitions: int
    config: tuple[tuple[str, str], ...]
    expected_head: int


class Delete(NamedTuple):
    expected_head: int


class Append(NamedTuple):
    app: str
    seq: int
    own: bool
    """True: an id that a producer of ours made up and that may be forgotten;
    False: a caller's key, which never is."""
    born: int
    """The tip that the author believed in when it first tried this number."""
    created_at_entry: int
    """Number of the create entry of the topic that the author means."""
    hashed_with: int
    """The partition count that keys were hashed with."""
    digest: str
    """Of the logical rows and their partitions, fixed before the first try."""
    ts_type: int
    """``CREATE_TIME`` or ``LOG_APPEND_TIME``."""
    parts: tuple[Part, ...]


class Replace(NamedTuple):
    planned_at: int
    """Tip of the state that the plan was made from."""
    runs: tuple[ReplacedRun, ...]


class CompactedTo(NamedTuple):
    """Of a partition: below ``end`` each key has one record, and none is without a key."""

    partition: int
    end: int
    time: int
    """The storage's clock when the pass began: tombstones that it met first count from then."""
    tombstones_from: int
    """Below it no tombstone is left."""


class Compact(NamedTuple):
    """Replaces like ``Replace``, by records that are each the newest of their key."""

    planned_at: int
    runs: tuple[ReplacedRun, ...]
    compacted: tuple[CompactedTo, ...]
    """Empty in all entries of a pass but the last one."""


class Erase(NamedTuple):
    """Replaces like ``Replace``, by all records but those of some keys."""

    planned_at: int
    runs: tuple[ReplacedRun, ...]
    ends: tuple[tuple[int, int], ...]
    """(partition, offset): below it no record of these keys is left. Empty in all entries of an
    erasure but the last one."""
    salt: str
    """32 hex digits, the same in all entries of an erasure."""
    keys: tuple[str, ...]
    """SHA-256 of the salt's bytes and each key's, as 64 hex digits."""
    records: int
    """How many records this entry takes."""
    by: str
    """Who asked for it."""


class Trim(NamedTuple):
    starts: tuple[tuple[int, int], ...]
    """(partition, new log start offset)."""


class Collect(NamedTuple):
    horizon: int


class Expire(NamedTuple):
    floor: int
    callers: tuple[str, ...] = ()
    """Callers' keys to be forgotten: only ever by an explicit command."""


Body = Create | Configure | Delete | Append | Replace | Compact | Erase | Trim | Collect | Expire


def rules_of(body: Body) -> int:
    """The version of the rules that an entry needs."""
    if isinstance(body, Create | Configure):
        config = dict(body.config)
        tabled = config.get("table.format", "none") != "none"
        return 2 if tabled or "compact" in config.get("cleanup.policy", "") else FIRST_RULES
    if isinstance(body, Replace):
        empty = any(piece.segment is None for run in body.runs for piece in run.pieces)
        return 2 if empty else FIRST_RULES
    return 2 if isinstance(body, Compact | Erase) else FIRST_RULES


class Entry(NamedTuple):
    write_id: str
    """32 hex digits; tells an author its own entry from everybody else's."""
    time: int
    """The author's clock at the first try. For people; nothing rests on it."""
    body: Body


class VoidReason:
    """Why an entry does not count."""

    DUPLICATE = "duplicate"
    FORGOTTEN = "forgotten"
    DELETED = "deleted"
    NO_PARTITION = "no-partition"
    CONDEMNED = "condemned"
    SUPERSEDED = "superseded"
    STALE = "stale"
    INVALID = "invalid"


class Void(NamedTuple):
    """The fold's word on an entry that does not count."""

    reason: str
    detail: str


class Placed(NamedTuple):
    """Where a part of a counted append came to lie: offsets [base, base + records)."""

    partition: int
    base: int
    records: int


class Counted(NamedTuple):
    """The fold's word on an entry that counts."""

    placed: tuple[Placed, ...] = ()


Verdict = Counted | Void
