"""What is written down about a group: one fact, one row of the offsets table.

Rules of this module:

1. A fact has the table's columns and nothing else; it is never changed once it is written.
2. Facts are ordered by ``version`` and, within one version, by ``place``. ``committed_at`` is
   its author's clock: it is for people and for retention, and orders nothing.
3. ``offset`` is always the next offset to read.
4. What a kind has to say beyond the columns is strict JSON in ``metadata``. Only in
   ``commit`` and ``release`` is ``metadata`` the user's own text.

| kind | says | columns besides group, committed_at, generation, write_id, version, place |
|---|---|---|
| commit | the owner's position | topic, partition, offset, metadata, reset (followed), member |
| release | the holder gives it up | as commit; offset is null when it has no position |
| reset | a position put elsewhere | topic, partition, offset, reset (its own number) |
| join | a member, or its new subscription | member, metadata: ``Subscription`` |
| leave | the member goes | member |
| expel | the member is expelled | member, metadata: by, why |
| topics | a partition count | topic, metadata: ``TopicView``; 0 partitions: it is gone |
| delete | positions are dropped | topic and partition; both null: the whole group |

A ``join`` that owns its group alone is at the same time the expulsion of all other members.
Where a member would begin (``Subscription.start``) and the checkpoint of a query are for whoever
looks: the fold does not use them.
``generation`` is, in a commit and a release, the one its author worked in; elsewhere the one
that the group has after the append. ``member`` is null where no member speaks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple, TypeGuard, TypeVar

from offsetlog.core.decode import (
    Decoder,
    Malformed,
    boolean,
    default,
    from_json,
    from_value,
    integer,
    list_of,
    map_of,
    nullable,
    plain,
    record,
    string,
)
from offsetlog.errors import CorruptLogError, InvalidRequestError
from offsetlog.values import MAX_OFFSET, MAX_PARTITIONS

RULES_VERSION = 1
"""Version of the rules by which facts are folded, the assignment among them. All members
must compute the same, so a fact of a newer version stops the fold."""

MAX_METADATA_BYTES = 4096
MAX_TEXT = 1_000_000
MAX_STARTS = 10_000
"""Offsets that one ``StartingPoint`` names; who has more says nothing."""

Partition = tuple[str, int]
"""(topic, partition), as everywhere in the public surface."""
AnyPartition = TypeVar("AnyPartition", bound=Partition)
"""For mappings by ``Partition`` or by ``TopicPartition``."""


class FactKind:
    COMMIT = "commit"
    RELEASE = "release"
    RESET = "reset"
    JOIN = "join"
    LEAVE = "leave"
    EXPEL = "expel"
    TOPICS = "topics"
    DELETE = "delete"


KINDS = frozenset(kind for name, kind in vars(FactKind).items() if name.isupper())


class Fact(NamedTuple):
    """One row. The field names are the column names."""

    group: str
    topic: str | None
    partition: int | None
    offset: int | None
    metadata: str
    committed_at: int
    """Milliseconds since the epoch, by the author's clock."""
    generation: int
    reset: int
    member: str | None
    kind: str
    write_id: str
    version: int
    place: int
    """Position within the version: 0, 1, 2 ..."""


class OffsetAndMetadata(NamedTuple):
    """The next offset to read, and a word of the user's."""

    offset: int
    metadata: str = ""


class StartingPoint(NamedTuple):
    """Where a member begins to read the partitions in which its group has no position yet."""

    policy: str = ""
    """Of those that ``offsets`` does not name: ``earliest``, ``latest``, ``none``; "": unknown."""
    offsets: Mapping[Partition, int | None] = {}  # noqa: RUF012 - never changed
    """None: it reads this one too, and does not say from where."""
    only: bool = False
    """Of its topics it reads the partitions of ``offsets`` alone."""


class Subscription(NamedTuple):
    """What a member declares when it joins."""

    topics: tuple[str, ...]
    strategy: str = "sticky"
    session_ms: int = 45_000
    """0: it sends no heartbeats, and is never expelled for their lack."""
    client: str = ""
    """The name that people know it by."""
    host: str = ""
    alone: bool = False
    """It owns every partition of the group, and is its only member."""
    start: StartingPoint | None = None
    """None: it did not say, as older versions don't."""
    checkpoint: str = ""
    """The id in the checkpoint of a query that owns its group; "": none has it yet, or the query
    is of an older version."""

    @property
    def rules(self) -> Subscription:
        """What the fold goes by; versions that know of no ``start`` and no ``checkpoint`` fold the
        same."""
        return self._replace(start=None, checkpoint="")


class TopicView(NamedTuple):
    """A topic as somebody saw it. ``tip`` is the tip of its chain, which only grows, so that
    of two views the newer one is known without a clock."""

    partitions: int
    tip: int


class Expulsion(NamedTuple):
    by: str
    why: str


def encode_subscription(subscription: Subscription) -> str:
    """Text of a ``join``; topics are sorted, so equal subscriptions read the same."""
    topics = sorted(set(subscription.topics))
    data = {**subscription._asdict(), "topics": topics, "rules": RULES_VERSION}
    del data["start"]
    if not subscription.checkpoint:
        del data["checkpoint"]
    if subscription.start is not None:
        data["start"] = _plain_start(subscription.start)
    return _dump(data)


def _plain_start(start: StartingPoint) -> dict[str, Any]:
    offsets: dict[str, dict[str, int | None]] = {}
    for (topic, partition), offset in start.offsets.items():
        offsets.setdefault(topic, {})[str(partition)] = offset
    return {
        **({"policy": start.policy} if start.policy else {}),
        **({"offsets": offsets} if offsets else {}),
        **({"only": True} if start.only else {}),
    }


def decode_subscription(text: str) -> Subscription | None:
    """None when this is not a subscription; an error when a newer version wrote it."""
    try:
        data = from_json(plain, text, "a subscription", MAX_TEXT)
        check_rules(data.get("rules"))
        return from_value(_SUBSCRIPTION, data, "a subscription")
    except CorruptLogError:
        return None


def _topics(value: object) -> tuple[str, ...]:
    return tuple(sorted(set(_TOPICS(value))))


def _name(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise Malformed("a topic without a name")
    return value


def _partition(text: object) -> int:
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or len(text) > 9:
        raise Malformed("it is not a partition")
    return int(text)


def _start(value: object) -> StartingPoint | None:
    """Nobody depends on it: what is no starting point, as a newer version's, is none at all, and
    the join counts for every version alike."""
    try:
        return _STARTING_POINT(value)
    except Malformed:
        return None


def _checkpoint(value: object) -> str:
    """Nobody's fold depends on it either."""
    return value if isinstance(value, str) else ""


def _offsets(value: object) -> dict[Partition, int | None]:
    return {
        (topic, partition): offset
        for topic, inner in _NESTED(value).items()
        for partition, offset in inner.items()
    }


_TEXT = string(MAX_TEXT)
_TOPICS = list_of(_name)
_NESTED = map_of(map_of(nullable(integer(0, MAX_OFFSET)), key=_partition), key=_name)
_STARTING_POINT: Decoder[StartingPoint | None] = nullable(
    record(
        StartingPoint,
        policy=default(_TEXT, ""),
        offsets=default(_offsets, {}),
        only=default(boolean, False),
    )
)
_SUBSCRIPTION = record(
    Subscription,
    topics=_topics,
    strategy=_TEXT,
    session_ms=integer(high=inf),
    client=_TEXT,
    host=_TEXT,
    alone=boolean,
    start=_start,
    checkpoint=default(_checkpoint, ""),
)


def encode_topic(view: TopicView) -> str:
    return _dump(view._asdict())


def decode_topic(text: str) -> TopicView | None:
    try:
        return from_json(_TOPIC_VIEW, text, "a view of a topic", MAX_TEXT)
    except CorruptLogError:
        return None


_TOPIC_VIEW = record(TopicView, partitions=integer(0, MAX_PARTITIONS), tip=integer(high=inf))


def encode_expulsion(expulsion: Expulsion) -> str:
    return _dump(expulsion._asdict())


def decode_expulsion(text: str) -> Expulsion:
    """Who did it and why is for people: a text of another shape is no reason to ignore it."""
    try:
        data = from_json(plain, text, "an expulsion", MAX_TEXT)
    except CorruptLogError:
        data = {}
    return Expulsion(str(data.get("by", "")), str(data.get("why", "")))


def whole(value: object) -> TypeGuard[int]:
    """An integer that is no boolean."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_rules(version: Any) -> None:
    """Stop before anything that a newer version wrote is folded by older rules."""
    if whole(version) and version > RULES_VERSION:
        raise InvalidRequestError(
            f"The group's facts follow rules of version {version}; this program knows "
            f"version {RULES_VERSION}.",
            "Upgrade offsetlog here, or stop the newer members of the group.",
        )


def check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise InvalidRequestError(
            f"The offsets table holds a fact of the unknown kind {kind!r}.",
            "It was written by a newer version or by another program: upgrade offsetlog.",
        )


def check_position(partition: Partition, position: OffsetAndMetadata) -> None:
    """What can be wrong in a position without knowing the log."""
    where = f"partition {partition[1]} of topic {partition[0]!r}"
    if not whole(position.offset) or not 0 <= position.offset <= MAX_OFFSET:
        raise InvalidRequestError(
            f"{position.offset!r} is not an offset that can be committed for {where}.",
            "Commit the next offset to read, a whole number from 0.",
        )
    if not isinstance(position.metadata, str) or not _is_text(position.metadata):
        raise InvalidRequestError(
            f"The metadata committed for {where} is no text that can be stored: "
            f"{ascii(position.metadata)[:80]}.",
            "Give it as text without lone surrogates, such as os.fsencode(name).hex() of a file "
            "name that is no UTF-8.",
        )
    if len(position.metadata.encode()) > MAX_METADATA_BYTES:
        raise InvalidRequestError(
            f"The metadata committed for {where} is longer than {MAX_METADATA_BYTES} bytes.",
            "Keep it short, and store what is long elsewhere.",
        )


def _is_text(value: str) -> bool:
    """Whether it can be written at all: halves of characters can't."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _dump(data: dict[str, Any]) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"))
