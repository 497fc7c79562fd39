"""Histories for the checker's tests: written by hand, and drawn from a log that keeps its word."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from offsetlog.testing.history import Event


class Told:
    """A history in the making. Time goes on by one with every line."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.now = 0
        self._n = 0

    def add(self, process: str, n: int, step: str, kind: str, what: Any) -> None:
        self.now += 1
        self.events.append(Event(process, n, self.now, step, kind, what))

    def begin(self, process: str, kind: str, **what: Any) -> int:
        self._n += 1
        self.add(process, self._n, "do", kind, what)
        return self._n

    def end(self, process: str, n: int, step: str = "ok", what: Any = None) -> None:
        self.add(process, n, step, "", what)

    def did(self, process: str, kind: str, **what: Any) -> None:
        self._n += 1
        self.add(process, self._n, "did", kind, what)

    # --- whole operations ------------------------------------------------------------------

    def send(self, who: str, places: dict[str, dict[Any, int]], **more: Any) -> None:
        """An acknowledged send: ``{"t/0": {"a": 4}}``."""
        n = self.begin(who, "send", records={tp: list(v) for tp, v in places.items()}, **more)
        self.end(who, n, "ok", {tp: list(v.values()) for tp, v in places.items()})

    def unsure(self, who: str, records: dict[str, list[Any]], step: str = "unknown", **more: Any):
        n = self.begin(who, "send", records=records, **more)
        self.end(who, n, step)

    def poll(self, who: str, got: dict[str, dict[int, Any]], group: str | None = None) -> None:
        """``{"t/0": {4: "a"}}``; of one offset twice give pairs."""
        n = self.begin(who, "poll", consumer="", group=group)
        pairs = {tp: list(v.items()) if isinstance(v, dict) else v for tp, v in got.items()}
        answer = {tp: ([o for o, _ in v], [x for _, x in v]) for tp, v in pairs.items()}
        self.end(who, n, "ok", answer)

    def do(self, who: str, kind: str, step: str = "ok", told: Any = None, **what: Any) -> None:
        n = self.begin(who, kind, **what)
        self.end(who, n, step, told)

    def seek(self, who: str, offsets: dict[str, int | None]) -> None:
        self.did(who, "seek", consumer="", offsets=offsets)

    def hold(self, who: str, kind: str, *partitions: str, group: str | None = "g") -> None:
        self.did(who, kind, consumer="", group=group, partitions=list(partitions))


class Cases(dict[str, tuple[set[str], dict[str, Any], Told]]):
    """By name what is to be found in which history, with which settings."""

    def of(self, *kinds: str, **settings: Any) -> Callable[..., Any]:
        """Keeps the history that the function tells, which names the case."""

        def keep(tell: Callable[[Told], None]) -> Callable[[Told], None]:
            told = Told()
            tell(told)
            self[tell.__name__] = (set(kinds), settings, told)
            return tell

        return keep


# --- a log that keeps its word -------------------------------------------------------------


class HonestLog:
    """Topic ``t``: what is asked of it takes effect at one moment, or never."""

    def __init__(self, partitions: int, trims: bool = True) -> None:
        self.trims = trims
        self.tps = [f"t/{p}" for p in range(partitions)]
        self.records: dict[str, list[str]] = {tp: [] for tp in self.tps}
        self.starts = dict.fromkeys(self.tps, 0)
        self.batches: dict[tuple[str, int], dict[str, list[int]]] = {}
        self.committed: dict[str, int | None] = dict.fromkeys(self.tps)
        self.resets = dict.fromkeys(self.tps, 0)
        self.owner: dict[str, str | None] = dict.fromkeys(self.tps)

    def append(self, records: dict[str, list[str]], key: Any) -> dict[str, list[int]]:
        if key is not None and key in self.batches:
            return self.batches[key]
        placed = {}
        for tp, values in records.items():
            base = len(self.records[tp])
            self.records[tp] += values
            placed[tp] = list(range(base, base + len(values)))
        if key is not None:
            self.batches[key] = placed
        return placed

    def ends(self) -> dict[str, int]:
        return {tp: len(values) for tp, values in self.records.items()}


class Actor:
    """One process: a generator that yields wherever others may come in between."""

    def __init__(self, told: Told, log: HonestLog, rng: random.Random, name: str) -> None:
        self.told, self.log, self.rng, self.name = told, log, rng, name
        self.count = 0

    def _effect(self, act):
        """Before it, at it, after it; or the process dies, or hears nothing."""
        fate = self.rng.random()
        if fate < 0.06:
            yield
            return "unknown", None
        yield
        result = act()
        yield
        return ("unknown", None) if fate < 0.12 else ("ok", result)


class Sender(Actor):
    def run(self, rounds: int):
        for _ in range(rounds):
            records = {}
            for tp in self.rng.sample(self.log.tps, self.rng.randint(1, len(self.log.tps))):
                records[tp] = [self._value() for _ in range(self.rng.randint(1, 3))]
            if self.rng.random() < 0.05:
                self.told.unsure(self.name, records, "fail")
                continue
            n = self.told.begin(self.name, "send", records=records)
            step, placed = yield from self._effect(lambda r=records: self.log.append(r, None))
            self.told.end(self.name, n, step, placed)
            yield

    def _value(self) -> str:
        self.count += 1
        return f"{self.name}-{self.count}"


class Batcher(Sender):
    """Sends each batch until it is sure; sometimes its heir has to."""

    def run(self, rounds: int):
        for number in range(rounds):
            records = {tp: [self._value(), self._value()] for tp in self.log.tps}
            key = (self.name, number)
            for _ in range(20):
                n = self.told.begin(self.name, "send", records=records, batch=list(key))
                step, placed = yield from self._effect(
                    lambda r=records, k=key: self.log.append(r, k)
                )
                first = self.log.batches.get(key)
                self.told.end(self.name, n, step, placed)
                if step == "ok":
                    break
                if first is None and self.rng.random() < 0.3:
                    # A re-run splits its rows otherwise; the first try never landed.
                    records = {tp: [self._value()] for tp in self.log.tps[:2]}
                yield


class Reader(Actor):
    def run(self, rounds: int):
        at = {tp: self.log.starts[tp] for tp in self.log.tps}
        self.told.hold(self.name, "assign", *self.log.tps, group=None)
        for _ in range(rounds):
            if self.rng.random() < 0.1:
                tp = self.rng.choice(self.log.tps)
                at[tp] = self.rng.randint(self.log.starts[tp], len(self.log.records[tp]))
                self.told.seek(self.name, {tp: at[tp]})
            yield from self._poll(at, None)

    def _poll(self, at: dict[str, int], group: str | None, only: Iterable[str] | None = None):
        n = self.told.begin(self.name, "poll", consumer="", group=group)
        yield
        got = {}
        for tp in self.log.tps if only is None else only:
            at[tp] = max(at[tp], self.log.starts[tp])
            take = self.log.records[tp][at[tp] : at[tp] + self.rng.randint(0, 4)]
            if take:
                got[tp] = (list(range(at[tp], at[tp] + len(take))), take)
                at[tp] += len(take)
        yield
        self.told.end(self.name, n, "ok", got)
        yield

    def finish(self) -> None:
        """Reads everything to the end."""
        got = {}
        self.told.hold(self.name, "assign", *self.log.tps, group=None)
        for tp, values in self.log.records.items():
            low = self.log.starts[tp]
            got[tp] = (list(range(low, len(values))), values[low:])
        n = self.told.begin(self.name, "poll", consumer="", group=None)
        self.told.end(self.name, n, "ok", got)


class Member(Reader):
    """Of group g. Takes what is free, gives it up, is put out while it stands still."""

    def run(self, rounds: int):
        log, at, followed = self.log, {}, {}
        for _ in range(rounds):
            gone = [tp for tp in at if log.owner[tp] != self.name]
            if gone:
                self.told.hold(self.name, "lost", *gone)
            for tp in gone:
                del at[tp]
            for tp in log.tps:
                if log.owner[tp] is None and tp not in at and self.rng.random() < 0.5:
                    log.owner[tp] = self.name
                    at[tp], followed[tp] = log.committed[tp] or 0, log.resets[tp]
                    yield
                    self.told.hold(self.name, "assign", tp)
            for tp in list(at):
                if log.resets[tp] != followed[tp]:
                    followed[tp] = log.resets[tp]
                    at[tp] = log.committed[tp] or 0
            mine = [tp for tp in at if log.owner[tp] == self.name]
            yield from self._poll(at, "g", mine)
            if at and self.rng.random() < 0.5:
                yield from self._commit(at, followed)
            if at and self.rng.random() < 0.15:
                tp = self.rng.choice(list(at))
                if log.owner[tp] == self.name:
                    self.told.hold(self.name, "revoke", tp)
                    del at[tp]
                    yield
                    log.owner[tp] = None
            yield

    def _commit(self, at: dict[str, int], followed: dict[str, int]):
        log, tp = self.log, self.rng.choice(list(at))
        n = self.told.begin(self.name, "commit", group="g", offsets={tp: at[tp]})

        def act() -> bool:
            if log.owner[tp] != self.name:
                return False
            if log.resets[tp] == followed[tp]:
                log.committed[tp] = at[tp]
            return True

        step, counted = yield from self._effect(act)
        self.told.end(self.name, n, "fail" if counted is False else step)


class Admin(Actor):
    def run(self, rounds: int):
        log = self.log
        for _ in range(rounds):
            dice = self.rng.random()
            if dice < 0.4:
                n = self.told.begin(self.name, "ends")
                yield
                ends = log.ends()
                yield
                self.told.end(self.name, n, "ok", ends)
            elif dice < 0.7:
                n = self.told.begin(self.name, "committed", group="g")
                yield
                seen = dict(log.committed)
                yield
                self.told.end(self.name, n, "ok", seen)
            elif dice < 0.8:
                yield from self._reset()
            elif dice < 0.9 and log.trims:
                tp = self.rng.choice(log.tps)
                to = self.rng.randint(0, len(log.records[tp]))
                n = self.told.begin(self.name, "trim", starts={tp: to})
                act = lambda tp=tp, to=to: log.starts.update({tp: max(log.starts[tp], to)})  # noqa: E731
                step, _ = yield from self._effect(act)
                self.told.end(self.name, n, step)
            else:
                tp = self.rng.choice(log.tps)
                if log.owner[tp] is not None:
                    log.owner[tp] = None  # Expelled: nobody asked the owner.
            yield

    def _reset(self):
        log, tp = self.log, self.rng.choice(self.log.tps)
        to = self.rng.choice([None, self.rng.randint(0, len(log.records[tp]))])
        n = self.told.begin(self.name, "reset", group="g", offsets={tp: to})

        def act() -> None:
            log.committed[tp] = to
            log.resets[tp] += 1

        step, _ = yield from self._effect(act)
        self.told.end(self.name, n, step)


CREW = (Sender, Sender, Batcher, Reader, Member, Member, Admin)


def honest_history(
    rng: random.Random, rounds: int = 6, partitions: int = 3, trims: bool = True
) -> list[Event]:
    """Interleaved operations of a log that keeps its word, read to its end."""
    told, log = Told(), HonestLog(partitions, trims)
    actors = [kind(told, log, rng, f"{kind.__name__.lower()}{i}") for i, kind in enumerate(CREW)]
    running = [actor.run(rounds) for actor in actors]
    while running:
        one = rng.choice(running)
        if rng.random() < 0.01:
            running.remove(one)  # Killed in the middle of whatever it did.
            continue
        try:
            next(one)
        except StopIteration:
            running.remove(one)
    Reader(told, log, rng, "last").finish()
    return told.events
