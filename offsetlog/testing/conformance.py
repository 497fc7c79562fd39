"""Is this filesystem fit for a log? The suite that every store of ours passes.

1. It races real processes for names while others read, since a filesystem that only looks
   before it writes passes every test that one process can make.
2. It works in one new folder under the given root, and removes it whatever happens.
3. A fault ends the check it belongs to, not the run: the report names all of them.
4. Everything is bounded in time by ``seconds_max``; with less time there are fewer rounds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from offsetlog.errors import OffsetLogError
from offsetlog.storage.store import Committed, Conflict, Store
from offsetlog.testing.racing import Crew, Landed, name_of, open_by, parse, payload
from offsetlog.testing.report import Check, Latency, Report

OPENER = "offsetlog.storage:open_store"
Progress = Callable[[str, int, int], None]

_READERS = 2
_SAMPLES = 60
_BIG = 40 << 20
_SHOWN_FAULTS = 3
_READY_SECONDS = 0.008
"""In so long every process has its bytes ready to be put."""
_ODD_NAMES = (
    "partition=0/a b.parquet",
    "partition=1/%41%2F.parquet",
    "sub/ünïcode-名前.parquet",
    "sub/plus+and&equals=1;semi,comma",
    "sub/#hash?question",
    "sub/'quote'(paren)[bracket]~!@$",
    "sub/" + "n" * 200,
)
_ODD_NAMES_SMB = tuple(name for name in _ODD_NAMES if "?" not in name)


class _Fault(Exception):
    """A check saw what must not be."""


class _NoTimeError(Exception):
    """A check came too late to see anything."""


def check_store(
    url: str,
    storage_options: Mapping[str, Any] | None = None,
    *,
    processes: int = 8,
    rounds: int = 50,
    seconds_max: float = 120.0,
    big_bytes: int = _BIG,
    opener: str = OPENER,
    progress: Progress | None = None,
) -> Report:
    """Run every check against a root, and report the results.

    ``opener`` names a function, ``module:function``, that is called with the URL and the storage
    options and returns a store: name your own to test a filesystem of your own.
    """
    return _Run(
        url,
        dict(storage_options or {}),
        processes,
        rounds,
        seconds_max,
        big_bytes,
        opener,
        progress,
    ).run()


def assert_store(
    url: str, storage_options: Mapping[str, Any] | None = None, **about: Any
) -> Report:
    """For a test: returns the report, or raises it as an ``AssertionError``."""
    report = check_store(url, storage_options, **about)
    if not report.passed:
        raise AssertionError(str(report))
    return report


class _Run:
    def __init__(
        self, url: str, options: dict[str, Any], processes: int, rounds: int, seconds: float,
        big_bytes: int, opener: str, progress: Progress | None,
    ) -> None:  # fmt: skip
        self._began = time.monotonic()
        self._until = time.time() + seconds
        self._seconds = seconds
        self._processes, self._rounds, self._big = max(2, processes), max(2, rounds), big_bytes
        self._opener, self._url, self._options = opener, url, options
        self._progress = progress or (lambda name, done, total: None)
        self._folder = f"offsetlog-check-{os.urandom(6).hex()}"
        self._store: Store = open_by(opener, url, options)
        self._crew: Crew | None = None
        self._checks: list[Check] = []
        self._latencies: list[Latency] = []
        self._alone = self._contended = 0.0
        self._raced = self._one_winner = 0
        self._put_seconds = 0.01

    def run(self) -> Report:
        steps: list[tuple[str, Callable[[], str]]] = [
            ("creates once", self._creates_once),
            ("missing files", self._missing),
            ("ranges", self._ranges),
            ("fresh listing", self._listing),
            ("overwrite", self._overwrites),
            ("names", self._names),
            ("delete", self._deletes),
            ("big file", self._big_file),
            ("figures", self._figures),
            ("race", self._race_and_watch),
        ]
        try:
            for number, (name, step) in enumerate(steps):
                self._progress(name, number, len(steps))
                if not self._step(name, step) and number == 0:
                    break  # What can't create at all needs no race to be refused.
            self._progress("done", len(steps), len(steps))
        finally:
            self._clean()
        return Report(
            url=self._store.url,
            checks=tuple(self._checks),
            latencies=tuple(self._latencies),
            puts_per_second_alone=self._alone,
            puts_per_second_contended=self._contended,
            processes=self._processes,
            rounds=self._raced,
            rounds_with_one_winner=self._one_winner,
            seconds=time.monotonic() - self._began,
        )

    def _step(self, name: str, step: Callable[[], str]) -> bool:
        try:
            self._add(name, True, step())
        except _NoTimeError as error:
            self._checks.append(Check(name, True, str(error), measured=False))
        except (_Fault, OffsetLogError) as error:
            self._add(name, False, str(error))
        except Exception as error:  # noqa: BLE001
            self._add(name, False, f"{type(error).__name__} escaped from the store")
        return self._checks[-1].passed

    def _add(self, name: str, passed: bool, detail: str) -> None:
        self._checks.append(Check(name, passed, detail))

    def _clean(self) -> None:
        if self._crew is not None:
            self._crew.close()
        try:
            self._store.delete_tree(self._folder)
        except OffsetLogError as error:
            if any(check.passed for check in self._checks):  # Else there is nothing to remove.
                self._add("cleaning up", False, str(error))
        finally:
            self._store.close()

    def _name(self, rest: str) -> str:
        return f"{self._folder}/{rest}"

    def _create(self, name: str, data: bytes) -> object:
        offer = self._store.offer(data, name)
        try:
            return offer.put(name)
        finally:
            offer.close()

    def _created(self, name: str, data: bytes) -> None:
        _expect(self._create(name, data), Committed(), f"creating {name!r}")

    # -- one process

    def _creates_once(self) -> str:
        store, name = self._store, self._name("once/a")
        first, second = payload(1, 1, 1000), payload(2, 2, 50)
        offer = store.offer(first, name)
        try:
            _expect(offer.put(name), Committed(), "the first create")
            _expect(store.get(name), first, "reading it back")
            _expect(self._create(name, second), Conflict(), "a second create of the same name")
            _expect(store.get(name), first, "reading after the second create")
            other = self._name("once/b")
            _expect(offer.put(name), Conflict(), "creating it again with its own bytes")
            _expect(offer.put(other), Committed(), "the same bytes at the next name")
            _expect(store.get(other), first, "reading the next name")
        finally:
            offer.close()
        self._created(self._name("once/empty"), b"")
        _expect(self._create(self._name("once/empty"), first), Conflict(), "over an empty file")
        return "a second create conflicts, and changes nothing"

    def _missing(self) -> str:
        store, name = self._store, self._name("none/here")
        for what in ((), (0, 10), (5, None), (-8, None)):
            _expect(store.get(name, *what), None, f"reading {what} of a file that is not there")
        _expect(store.info(name), None, "asking about a file that is not there")
        _expect(list(store.list(self._name("none"))), [], "listing a folder that is not there")
        _expect(list(store.folders(self._name("none"))), [], "its folders")
        store.delete([name])
        return "what is not there reads as nothing"

    def _ranges(self) -> str:
        store, name = self._store, self._name("ranges/a")
        data = payload(3, 3, 5000)
        self._created(name, data)
        size = len(data)
        for start, end in (
            *((None, None), (0, 1), (0, size), (100, 200), (7, 7), (None, 64)),
            *((size - 5, None), (-8, None), (-size, None), (-size - 9, None)),
            *((0, size + 50), (4000, size + 50), (size, None), (size + 9, size + 12)),
        ):
            _expect(store.get(name, start, end), data[start:end], f"the range {start}:{end}")
        return "whole, from the start, from the end, beyond the end"

    def _listing(self) -> str:
        store, folder = self._store, self._name("listing")
        _expect(list(store.list(folder)), [], "the listing before")
        for number in range(12):
            name = f"{folder}/{number:04d}"
            self._created(name, b"x" * (number + 1))
            found = {one.name: one.size for one in store.list(folder)}
            if found.get(name) != number + 1 or len(found) != number + 1:
                raise _Fault(f"right after {name!r} was created the listing gave {sorted(found)}")
            info = store.info(name)
            if info is None or (info.name, info.size) != (name, number + 1):
                raise _Fault(f"right after {name!r} was created its info was {info}")
        if "listing" not in set(store.folders(self._folder)):
            raise _Fault("a folder with files in it is not among its parent's folders")
        modified = max(one.modified_ms for one in store.list(folder)) / 1000
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(modified))
        return f"a new file is listed at once (the storage's clock says {clock} UTC)"

    def _names(self) -> str:
        names = _ODD_NAMES_SMB if self._url.startswith("smb:") else _ODD_NAMES
        for odd in names:
            name = self._name(odd)
            data = odd.encode()
            self._created(name, data)
            _expect(self._store.get(name), data, f"reading {odd!r}")
            folder, _, last = name.rpartition("/")
            if name not in {one.name for one in self._store.list(folder)}:
                raise _Fault(f"{last!r} is missing from its folder's listing")
        return f"{len(names)} odd ones were created, read and listed"

    def _deletes(self) -> str:
        store = self._store
        names = [self._name(f"delete/{number}") for number in range(5)]
        for name in names:
            self._created(name, b"x")
        store.delete([*names[:3], self._name("delete/never")])
        _expect([store.get(name) for name in names], [None] * 3 + [b"x"] * 2, "reading after it")
        left = sorted(one.name for one in store.list(self._name("delete")))
        _expect(left, names[3:], "listing after it")
        self._created(self._name("delete/deep/er/file"), b"x")
        store.delete_tree(self._name("delete"))
        _expect(store.get(self._name("delete/deep/er/file")), None, "reading a deleted tree")
        _expect(list(store.list(self._name("delete"))), [], "listing a deleted tree")
        self._created(names[0], b"again")
        _expect(store.get(names[0]), b"again", "creating in a folder that was deleted")
        return "files and trees go at once, and a deleted folder can be used again"

    def _big_file(self) -> str:
        name = self._name("big/a")
        data = os.urandom(1 << 20) * max(1, self._big >> 20)
        began = time.monotonic()
        self._store.put(name, data)
        put = time.monotonic() - began
        if self._store.get(name) != data:
            raise _Fault(f"a file of {len(data)} bytes came back different")
        get = time.monotonic() - began - put
        _expect(self._store.get(name, len(data) - 999), data[-999:], "its last bytes")
        mib = len(data) / (1 << 20)
        return f"{mib:.0f} MiB at {mib / put:.0f} MiB/s up and {mib / get:.0f} MiB/s down"

    def _figures(self) -> str:
        store, folder = self._store, self._name("figures")
        data = payload(0, 0, 2000)
        calls: dict[str, Callable[[int], object]] = {
            "put": lambda n: self._create(f"{folder}/{n:08d}", data),
            "get": lambda n: store.get(f"{folder}/{n:08d}"),
            "miss": lambda n: store.get(f"{folder}/missing-{n}"),
            "list": lambda n: list(store.list(folder)),
        }
        budget = self._seconds / 10
        self._create(f"{folder}/warm", data)
        for call, work in calls.items():
            times: list[float] = []
            began = time.monotonic()
            while len(times) < _SAMPLES and time.monotonic() - began < budget:
                at = time.monotonic()
                work(len(times))
                times.append(time.monotonic() - at)
            if call == "put":
                self._alone = len(times) / (time.monotonic() - began)
                self._put_seconds = sorted(times)[len(times) // 2]
            times.sort()
            p50, p99 = times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)]
            self._latencies.append(Latency(call, p50 * 1000, p99 * 1000))
        return f"{_SAMPLES} calls of each kind, 2 KB each"

    # -- many processes

    def _members(self) -> Crew:
        """The processes, racers first and then readers; they are started once."""
        if self._crew is None:
            threads = self._url.startswith("memory:")
            count = self._processes + _READERS
            self._crew = Crew(count, self._opener, self._url, self._options, threads=threads)
        return self._crew

    def _until_at_most(self, seconds: float) -> float:
        """The end of a step; each gets a second, however late it is."""
        now = time.time()
        return max(min(self._until, now + seconds), now + 1.0)

    def _overwrites(self) -> str:
        name, times = self._name("overwrite/a"), 40
        self._store.put(name, payload(0, 0, 300))
        members = self._members()  # Starting them takes seconds on a busy machine.
        until = self._until_at_most(self._seconds / 5)
        reread = ("reread", {"name": name, "last": times, "until": until})
        writer = ("overwrite", {"name": name, "times": times, "until": until})
        answers = members.order([writer] + [reread] * _READERS, until)
        _raise_faults([fault for answer in answers for fault in answer["faults"]])
        reads = sum(answer.get("reads", 0) for answer in answers)
        if not answers[0]["done"] or not reads:
            raise _NoTimeError("there was no time for it")
        return f"{answers[0]['done']} versions, {reads} reads meanwhile, each of a whole version"

    def _race_and_watch(self) -> str:
        folder = self._name("race")
        together = self._rounds // 2
        landed, faults, looks = self._race_together(folder, together)
        more, more_faults, more_looks, seconds = self._race(folder, together, self._rounds)
        committed = sum(one.outcome == "committed" for _, one in more)
        self._contended = committed / seconds if seconds else 0.0
        faults += more_faults + self._judge(folder, landed + more)
        _raise_faults(faults)
        if not self._raced:
            raise _NoTimeError("there was no time for a single race")
        return (
            f"{self._processes} processes, {self._raced} names, one winner each; "
            f"{looks + more_looks} looks meanwhile, none torn"
        )

    def _race_together(
        self, folder: str, last: int
    ) -> tuple[list[tuple[int, Landed]], list[str], int]:
        """All try a name at one moment, and the next when all have an answer: who is late for one
        name is not for the next."""
        until = self._until_at_most(self._seconds / 3)
        crew, racers = self._members(), self._processes
        about = {"folder": folder, "last": last, "until": until}
        crew.begin([("watch", {**about, "first": 0})] * _READERS, racers)
        landed: list[tuple[int, Landed]] = []
        faults: list[str] = []
        for place in range(last):
            if time.time() > until:
                break
            one: dict[str, Any] = {
                "folder": folder,
                "first": place,
                "last": place + 1,
                "until": until,
            }
            one["start"] = time.time() + _READY_SECONDS
            orders = [("race", {**one, "member": member}) for member in range(racers)]
            for member, answer in enumerate(crew.order(orders, until)):
                landed += [(member, found) for found in answer["landed"]]
                faults += answer["faults"]
        watched = crew.answers(_READERS, until, racers)
        faults += [fault for answer in watched for fault in answer["faults"]]
        return landed, faults, sum(answer["looks"] for answer in watched)

    def _race(
        self, folder: str, first: int, last: int
    ) -> tuple[list[tuple[int, Landed]], list[str], int, float]:
        until = self._until_at_most(self._seconds / 3)
        about = {"folder": folder, "first": first, "last": last, "until": until}
        race = {**about, "start": time.time() + 0.05}
        orders = [("race", {**race, "member": member}) for member in range(self._processes)]
        orders += [("watch", about)] * _READERS
        answers = self._members().order(orders, until)
        landed = [
            (member, one)
            for member, answer in enumerate(answers[: self._processes])
            for one in answer["landed"]
        ]
        faults = [fault for answer in answers for fault in answer["faults"]]
        looks = sum(answer.get("looks", 0) for answer in answers)
        return landed, faults, looks, max(a["seconds"] for a in answers[: self._processes])

    def _judge(self, folder: str, landed: list[tuple[int, Landed]]) -> list[str]:
        """Who won each name, by their own word and by what is stored."""
        faults = []
        tries: dict[int, list[tuple[int, Landed]]] = {}
        for member, one in landed:
            tries.setdefault(one.place, []).append((member, one))
        for place, tried in sorted(tries.items()):
            self._raced += 1
            name = name_of(folder, place)
            winners = [(m, one.serial) for m, one in tried if one.outcome == "committed"]
            # A client that repeats a lost request meets its own file: it won without knowing.
            others = [(m, one.serial) for m, one in tried if one.outcome != "committed"]
            stored = parse(self._store.get(name) or b"")
            holder = None if stored is None else (stored.member, stored.serial)
            if len(winners) > 1:
                who = ", ".join(str(m) for m, _ in winners)
                faults.append(f"name {place}: {len(winners)} of {len(tried)} won (processes {who})")
            elif holder not in (winners or others):
                faults.append(f"name {place}: {winners or 'nobody'} won, but it holds {holder}")
            elif not isinstance(self._create(name, b"late"), Conflict):
                faults.append(f"name {place}: a late create did not conflict")
            elif parse(self._store.get(name) or b"") != stored:
                faults.append(f"name {place}: a late create changed what is stored")
            else:
                self._one_winner += 1
        return faults


def _expect(found: object, wanted: object, what: str) -> None:
    # The port's answers are tuples without members: only their types tell them apart.
    if type(found) is not type(wanted) or found != wanted:
        raise _Fault(f"{what} gave {_short(found)}, not {_short(wanted)}")


def _short(value: object) -> str:
    text = f"{len(value)} bytes" if isinstance(value, bytes) and len(value) > 40 else repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _raise_faults(faults: list[str]) -> None:
    if faults:
        shown = "; ".join(faults[:_SHOWN_FAULTS])
        more = len(faults) - _SHOWN_FAULTS
        raise _Fault(f"{shown}; and {more} more" if more > 0 else shown)
