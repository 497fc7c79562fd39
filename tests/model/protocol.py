"""A small model of a topic's protocol: every interleaving of a few writers and one maintainer.

It is written from the design, not from the code: entries, the fold, names put at most once,
answers that are lost, puts that land late, crashes, and deletes that come as late as they like.
A *rule* can be taken away (``without``); then a counterexample must be found.

1. A state is a value, an action gives a new one; nothing is hidden in objects.
2. A batch is one record. A segment's id says what is in it.
3. Views are prefixes of the chain, as old as their holder likes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

Record = tuple[str, int]
"""(app, number)."""


class Seg(NamedTuple):
    born: int
    holds: tuple[Record, ...]
    copy: int


class Append(NamedTuple):
    record: Record
    number: int
    own: bool
    born: int
    life: int
    seg: Seg | None


class Replace(NamedTuple):
    planned: int
    start: int
    end: int
    seg: Seg


class Collect(NamedTuple):
    horizon: int


class Expire(NamedTuple):
    floor: int


class Create(NamedTuple):
    sees: int


class Delete(NamedTuple):
    sees: int


Entry = Append | Replace | Collect | Expire | Create | Delete
Place = tuple[str, object]
"""("entry", number) or ("segment", Seg)."""


class Topic(NamedTuple):
    """The fold."""

    tip: int = 0
    log: tuple[Record, ...] = ()
    places: tuple[Place, ...] = ()
    start: int = 0
    alive: bool = False
    life: int = -1
    head: int = -1
    floor: int = 0
    horizon: int = 0
    own: tuple[tuple[str, int, int], ...] = ()
    callers: tuple[tuple[str, int, int], ...] = ()
    replaces: tuple[tuple[int, int, int], ...] = ()
    word: str = ""
    """On the newest entry."""


class Writer(NamedTuple):
    app: str
    own: bool
    number: int = 1
    view: int = 0
    at: int = -1
    """The name tried next; -1: nothing is on its way."""
    entry: Append | None = None
    copies: int = 0
    lives: int = 0


class Maintainer(NamedTuple):
    view: int = 0
    at: int = -1
    entry: Entry | None = None
    doomed: tuple[Seg, ...] = ()
    done: tuple[str, ...] = ()


class World(NamedTuple):
    chain: tuple[Entry, ...]
    segments: frozenset[Seg]
    stubs: frozenset[int]
    air: frozenset[tuple[int, Entry]]
    """Puts that may still land, each at its name."""
    writers: tuple[Writer, ...]
    maintainers: tuple[Maintainer, ...]
    acked: frozenset[tuple[Record, int]]
    refused: frozenset[Record]
    losses: int
    """Answers that may still be lost."""
    crashes: int


class Setting(NamedTuple):
    """How large the world is."""

    name: str
    writers: tuple[tuple[bool, bool], ...]
    """For each: is its id its own (else a caller's key); does it write segments."""
    numbers: int
    maintenance: tuple[tuple[str, ...], ...]
    """What each maintainer may do, as often as it is named."""
    losses: int
    crashes: int
    longest: int


class Broken(Exception):
    """A promise is broken."""


class Model:
    def __init__(self, setting: Setting, without: str = "") -> None:
        self.setting = setting
        self.without = without
        self.fold: Callable[[tuple[Entry, ...]], Topic] = lru_cache(None)(self._fold)

    # --- the fold --------------------------------------------------------------------------

    def _fold(self, chain: tuple[Entry, ...]) -> Topic:
        if not chain:
            return Topic()
        topic, entry = self.fold(chain[:-1]), chain[-1]
        word = self.judge(topic, entry)
        number = topic.tip
        topic = topic._replace(tip=number + 1, word=word)
        return topic if word != "counts" else self._apply(topic, number, entry)

    def judge(self, topic: Topic, entry: Entry) -> str:
        word = self._judge(topic, entry)
        is_off = self.without == f"{word} {type(entry).__name__.lower()}s"
        return "counts" if is_off and word in ("condemned", "stale") else word

    def _judge(self, topic: Topic, entry: Entry) -> str:
        if isinstance(entry, Append):
            app = entry.record[0]
            known = {a: n for a, n, _ in (topic.own if entry.own else topic.callers)}
            if entry.number <= known.get(app, 0) and self.without != "duplicate appends":
                return "duplicate"
            forgotten = entry.own and app not in known and entry.born < topic.floor
            if forgotten and self.without != "forgotten appends":
                return "forgotten"
            if not topic.alive or (entry.life != topic.life and self.without != "deleted appends"):
                return "deleted"
            if entry.seg is not None and entry.seg.born < topic.horizon:
                return "condemned"
        elif isinstance(entry, Replace):
            if not topic.alive or entry.start < topic.start:
                return "stale"
            for seen, start, end in topic.replaces:
                if seen >= entry.planned and start < entry.end and entry.start < end:
                    return "stale"
            if entry.seg.born < topic.horizon:
                return "condemned"
        elif isinstance(entry, Create | Delete):
            if entry.sees != topic.head and self.without != "superseded deletes":
                return "superseded"
            if topic.alive == isinstance(entry, Create):
                return "superseded"
        return "counts"

    def _apply(self, topic: Topic, number: int, entry: Entry) -> Topic:
        if isinstance(entry, Append):
            place: Place = ("entry", number) if entry.seg is None else ("segment", entry.seg)
            known = topic.own if entry.own else topic.callers
            app = entry.record[0]
            known = (*(k for k in known if k[0] != app), (app, entry.number, number))
            if entry.life != topic.life:
                raise Broken("4: a batch that was meant for a deleted topic counts in the next")
            topic = topic._replace(log=(*topic.log, entry.record), places=(*topic.places, place))
            return topic._replace(own=known) if entry.own else topic._replace(callers=known)
        if isinstance(entry, Replace):
            places = list(topic.places)
            places[entry.start : entry.end] = [("segment", entry.seg)] * (entry.end - entry.start)
            seen = (number, entry.start, entry.end)
            return topic._replace(places=tuple(places), replaces=(*topic.replaces, seen))
        if isinstance(entry, Collect):
            return topic._replace(horizon=max(topic.horizon, min(entry.horizon, number)))
        if isinstance(entry, Expire):
            floor = max(topic.floor, min(entry.floor, number))
            return topic._replace(floor=floor, own=tuple(k for k in topic.own if k[2] >= floor))
        if isinstance(entry, Create):
            return topic._replace(alive=True, life=number, head=number)
        if entry.sees != topic.head:
            raise Broken("1: an old delete hits a new topic")
        return topic._replace(alive=False, life=-1, head=number, start=len(topic.log))

    # --- the world -------------------------------------------------------------------------

    def start(self) -> World:
        writers = tuple(
            Writer(f"{'own' if own else 'key'}{i}", own)
            for i, (own, _) in enumerate(self.setting.writers)
        )
        return World(
            (Create(-1),), frozenset(), frozenset(), frozenset(), writers,
            tuple(Maintainer() for _ in self.setting.maintenance),
            frozenset(), frozenset(), self.setting.losses, self.setting.crashes,
        )  # fmt: skip

    def next(self, world: World) -> Iterator[tuple[str, World]]:
        """All that can happen, each with a sentence."""
        for i, writer in enumerate(world.writers):
            yield from self._writer(world, i, writer)
        for j, maintainer in enumerate(world.maintainers):
            yield from self._maintainer(world, j, maintainer)
        for name, entry in world.air:
            if name == len(world.chain) or self._is_free(world, name):
                rest = world._replace(air=world.air - {(name, entry)})
                yield f"late, {_told(entry)} lands at {name}", self._land(rest, name, entry)

    def _is_free(self, world: World, name: int) -> bool:
        return name == len(world.chain) or (
            self.without == "names stay taken" and name in world.stubs
        )

    def _land(self, world: World, name: int, entry: Entry) -> World:
        if name > len(world.chain):
            raise Broken(f"an entry lies at {name}, and there is a hole below it")
        chain = (*world.chain[:name], entry, *world.chain[name + 1 :])
        # What can't land any more is forgotten, so that equal worlds are equal values.
        air = frozenset((n, e) for n, e in world.air if n >= len(chain) or n in world.stubs)
        if self.without != "names stay taken":
            air = frozenset((n, e) for n, e in air if n >= len(chain))
        return world._replace(chain=chain, air=air)

    # --- writers ---------------------------------------------------------------------------

    def _writer(self, world: World, i: int, writer: Writer) -> Iterator[tuple[str, World]]:
        who = writer.app
        if world.crashes and (writer.number > 1 or writer.at >= 0):
            heir = Writer(who, False, writer.number, lives=writer.lives + 1)
            if writer.own:
                heir = Writer(f"{who}'", True, lives=writer.lives + 1)
            after = world._replace(crashes=world.crashes - 1)
            yield f"{who} is killed", _with(after, i, heir)
        if writer.at < 0:
            if writer.number <= self.setting.numbers and len(world.chain) < self.setting.longest:
                for view in {max(writer.view, 1), len(world.chain)}:
                    yield from self._begin(world, i, writer._replace(view=view))
            return
        assert writer.entry is not None
        told = _told(writer.entry)
        if not self._is_free(world, writer.at) and writer.at < len(world.chain):
            moved = writer._replace(at=writer.at + 1)
            yield f"{who} meets another file at {writer.at}", _with(world, i, moved)
            return
        if len(world.chain) >= self.setting.longest:
            return
        landed = self._land(world, writer.at, writer.entry)
        answered = _with(landed, i, writer._replace(at=-1))
        yield f"{who} lands {told} at {writer.at}", self._judged(answered, i, writer)
        if world.losses:
            again = writer._replace(at=writer.at + (self.without == "no answer is no conflict"))
            if self.without == "a retry keeps its number":
                again = again._replace(entry=writer.entry._replace(number=writer.entry.number + 1))
            less = world.losses - 1
            yield (
                f"{who} lands {told} at {writer.at} and is not told",
                _with(landed._replace(losses=less), i, again),
            )
            air = world.air | {(writer.at, writer.entry)}
            yield (
                f"{who} puts {told} at {writer.at}, which is on its way",
                _with(world._replace(air=air, losses=less), i, again),
            )

    def _begin(
        self, world: World, i: int, writer: Writer, born: int | None = None
    ) -> Iterator[tuple[str, World]]:
        """A batch is made from a view, and its segment written."""
        topic = self.fold(world.chain[: writer.view])
        record = (writer.app, writer.number)
        if not topic.alive:
            return
        seg = None
        if self.setting.writers[i][1]:
            seg = Seg(writer.view, (record,), 10 * (i + 1) + writer.copies)
            world = world._replace(segments=world.segments | {seg})
        first = writer.view if born is None else born
        entry = Append(record, writer.number, writer.own, first, topic.life, seg)
        sending = writer._replace(at=writer.view, entry=entry, copies=writer.copies + 1)
        if record in topic.log and self.without != "the forgotten look for what landed":
            offset = topic.log.index(record)
            yield f"{writer.app} finds {record} there", self._ack(world, i, writer, offset)
            return
        yield f"{writer.app} makes {_told(entry)}, seeing {writer.view}", _with(world, i, sending)

    def _judged(self, world: World, i: int, writer: Writer) -> World:
        """What a sender does with the fold's word at the place where it landed."""
        topic = self.fold(world.chain[: writer.at + 1])
        now = writer._replace(view=writer.at + 1, at=-1)
        if self.without == "acknowledged after the fold":
            assert writer.entry is not None
            believed = len(self.fold(world.chain[: writer.view]).log)
            return self._ack(world, i, now, believed)
        for _, after in self._settled(world, i, now, topic, topic.word):
            return after
        return _with(world, i, now)

    def _settled(
        self, world: World, i: int, writer: Writer, topic: Topic, word: str
    ) -> Iterator[tuple[str, World]]:
        record = (writer.app, writer.number)
        there = record in topic.log
        if word == "forgotten" and self.without == "the forgotten look for what landed":
            there = False
        if word != "deleted" and there:
            yield (
                f"{writer.app} is sure of {record}",
                self._ack(world, i, writer, topic.log.index(record)),
            )
        elif word == "deleted" and not there:
            after = world._replace(refused=world.refused | {record})
            yield "", _with(after, i, writer._replace(number=writer.number + 1, entry=None))
        elif there:
            yield "", self._ack(world, i, writer, topic.log.index(record))
        else:
            # Condemned or forgotten: the same number again, with what the view says now.
            yield from self._begin(world, i, writer)

    def _ack(self, world: World, i: int, writer: Writer, offset: int) -> World:
        record = (writer.app, writer.number)
        after = world._replace(acked=world.acked | {(record, offset)})
        return _with(after, i, writer._replace(number=writer.number + 1, entry=None, copies=0))

    # --- the maintainer --------------------------------------------------------------------

    def _maintainer(self, world: World, j: int, m: Maintainer) -> Iterator[tuple[str, World]]:
        who = f"maintainer {j}"
        if m.doomed:
            left = world._replace(segments=world.segments - set(m.doomed))
            yield f"{who} deletes {len(m.doomed)} segments", _by(left, j, m._replace(doomed=()))
        if m.at >= 0:
            yield from self._maintainer_puts(world, j, m)
            return
        if m.view < len(world.chain):
            yield f"{who} looks", _by(world, j, m._replace(view=len(world.chain)))
        allowed = self.setting.maintenance[j]
        for what in dict.fromkeys(allowed):
            if m.done.count(what) < allowed.count(what):
                begun = m._replace(done=(*m.done, what))
                if what == "stub":
                    yield from self._stub(world, j, begun)
                else:
                    yield from self._propose(world, j, begun, what)

    def _stub(self, world: World, j: int, m: Maintainer) -> Iterator[tuple[str, World]]:
        topic = self.fold(world.chain[: m.view])
        live = {place for kind, place in topic.places[topic.start :] if kind == "entry"}
        if self.without == "rows move before they go":
            live = set()
        free = {
            n
            for n, e in enumerate(world.chain[: m.view])
            if isinstance(e, Append) and e.seg is None and n not in live
        }
        if free - world.stubs:
            after = _by(world._replace(stubs=world.stubs | free), j, m)
            yield f"maintainer {j} takes the rows out of {sorted(free)}", after

    def _propose(
        self, world: World, j: int, m: Maintainer, what: str
    ) -> Iterator[tuple[str, World]]:
        topic = self.fold(world.chain[: m.view])
        entry: Entry | None = None
        if what == "replace" and topic.alive and len(topic.log) - topic.start > 1:
            seg = Seg(m.view, topic.log[topic.start :], 100 * j + len(m.done))
            entry = Replace(m.view, topic.start, len(topic.log), seg)
            world = world._replace(segments=world.segments | {seg})
        elif what == "collect" and m.view > topic.horizon:
            entry = Collect(m.view)
        elif what == "expire" and m.view > topic.floor and topic.log:
            entry = Expire(m.view)
        elif what == "delete" and topic.alive:
            entry = Delete(topic.head)
        elif what == "create" and topic.head >= 0 and not topic.alive:
            entry = Create(topic.head)
        if entry is None:
            return
        if what == "collect" and self.without == "the list is of a state with the collect":
            m = m._replace(doomed=self._doomed(world, topic, m.view))
        after = _by(world, j, m._replace(at=m.view, entry=entry))
        yield f"maintainer {j} makes {_told(entry)}, seeing {m.view}", after

    def _doomed(self, world: World, topic: Topic, horizon: int) -> tuple[Seg, ...]:
        live = {place for kind, place in topic.places[topic.start :] if kind == "segment"}
        if self.without == "the horizon":
            horizon = 10**9
        return tuple(sorted(s for s in world.segments if s.born < horizon and s not in live))

    def _maintainer_puts(self, world: World, j: int, m: Maintainer) -> Iterator[tuple[str, World]]:
        assert m.entry is not None
        if m.at < len(world.chain):
            moved = m._replace(at=m.at + 1)
            yield f"maintainer {j} meets another file at {m.at}", _by(world, j, moved)
            return
        if len(world.chain) >= self.setting.longest + 2:
            return
        landed = self._land(world, m.at, m.entry)
        topic = self.fold(landed.chain)
        after = m._replace(view=m.at + 1, at=-1, entry=None)
        listed_before = self.without == "the list is of a state with the collect"
        if isinstance(m.entry, Collect) and not listed_before:
            after = after._replace(doomed=self._doomed(landed, topic, topic.horizon))
        if isinstance(m.entry, Replace) and self.without == "a void replace moves nothing":
            before = self.fold(world.chain[: m.entry.planned])
            moved_rows = before.places[m.entry.start : m.entry.end]
            rows = {n for kind, n in moved_rows if kind == "entry" and isinstance(n, int)}
            landed = landed._replace(stubs=landed.stubs | rows)
        yield f"maintainer {j} lands {_told(m.entry)} at {m.at}", _by(landed, j, after)

    # --- the promises ----------------------------------------------------------------------

    def check(self, before: World, world: World) -> None:
        """``Broken`` if a promise is."""
        topic, earlier = self.fold(world.chain), self.fold(before.chain)
        if topic.log[: len(earlier.log)] != earlier.log:
            raise Broken("2, 5: what lay at an offset is not what lies there now")
        if len(set(topic.log)) < len(topic.log):
            raise Broken("4: one batch counts twice")
        for record, offset in world.acked:
            if offset >= len(topic.log) or topic.log[offset] != record:
                raise Broken(f"1: {record} was acknowledged at {offset} and is not there")
        if world.refused & set(topic.log):
            raise Broken("4: a batch that was refused counts")
        for offset in range(topic.start, len(topic.log)):
            kind, place = topic.places[offset]
            if kind == "entry" and place in world.stubs:
                raise Broken(f"1: the rows of offset {offset} were taken out of entry {place}")
            if isinstance(place, Seg):
                if place not in world.segments:
                    raise Broken(f"1: the segment with offset {offset} was deleted")
                if topic.log[offset] not in place.holds:
                    raise Broken(f"2: the segment with offset {offset} holds something else")


def _with(world: World, i: int, writer: Writer) -> World:
    writers = (*world.writers[:i], writer, *world.writers[i + 1 :])
    return world._replace(writers=writers)


def _by(world: World, j: int, m: Maintainer) -> World:
    others = world.maintainers
    return world._replace(maintainers=(*others[:j], m, *others[j + 1 :]))


def _told(entry: Entry) -> str:
    if isinstance(entry, Append):
        app, number = entry.record
        how = "" if entry.seg is None else f" in a segment born at {entry.seg.born}"
        return f"batch {number} of {app}{how}"
    name = type(entry).__name__.lower()
    if isinstance(entry, Replace):
        return f"a replace of {entry.start} to {entry.end}"
    return f"a {name} {entry[0]}"
