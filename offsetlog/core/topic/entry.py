"""What an entry of a topic's chain says.

Rules of this module:

1. An entry is a proposal. It holds counts, never offsets, and not its own number, so its
   bytes are good at any place in the chain.
2. Values only: how they become bytes is ``offsetlog.format``'s business, whether they count
   is ``offsetlog.core.topic.fold``'s.
3. Ranges are half-open, times are milliseconds since the epoch.
"""

from __future__ import annotations

from typing import NamedTuple

RULES_VERSION = 1
"""Version of the rules by which entries are judged. An entry of a newer one stops the fold."""


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
    """A rewritten segment. It stores its records' offsets; compaction may have left gaps."""

    base: int
    end: int
    records: int
    bytes: int
    min_ts: int
    max_ts: int
    ts_type: int
    segment: SegmentRef


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
    """0: the records' own timestamps; 1: time of append."""
    parts: tuple[Part, ...]


class Replace(NamedTuple):
    planned_at: int
    """Tip of the state that the plan was made from."""
    runs: tuple[ReplacedRun, ...]


class Trim(NamedTuple):
    starts: tuple[tuple[int, int], ...]
    """(partition, new log start offset)."""


class Collect(NamedTuple):
    horizon: int


class Expire(NamedTuple):
    floor: int
    callers: tuple[str, ...] = ()
    """Callers' keys to be forgotten: only ever by an explicit command."""


Body = Create | Configure | Delete | Append | Replace | Trim | Collect | Expire


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
