"""The truth about a topic's table: each version as it lands, against the fold of the chain.

Invariants that it checks:

1. A version lands behind the last one, and its state is never older than that one's.
2. It names exactly the rewritten segments that are live in its state between the log start and its
   ends, which hold all records there are between them; and each of them is there.
3. A stream over the table gets no record twice, and loses none where it skips removals.
4. No segment is deleted that a version of the grace period names.
"""

from __future__ import annotations

import json
from typing import Any

from offsetlog.core.topic.table import files
from offsetlog.format import names, topic_table
from offsetlog.values import settings_of
from tests.simulation.world import Violation, World


class TableTruth:
    def __init__(self, world: World, oracle: Any, folder: str, grace_ms: int) -> None:
        self._world = world
        self._oracle = oracle
        self._folder = folder
        self._grace = grace_ms
        """The least that any maintainer has."""
        self._tip = 0
        self._live: set[str] = set()
        self._streamed: set[tuple[int, int]] = set()
        self._versions: list[tuple[int, frozenset[str]]] = []
        """Of each version when it was replaced as the newest, and what it names."""

    def watch(self, what: str, name: str, data: bytes | None) -> None:
        if name.startswith(f"{self._folder}/_delta_log/0") and name.endswith(".json"):
            if what == "create":
                self._landed(name, data or b"")
        elif what == "delete" and names.parse_segment(name) is not None:
            self._deleted(name)

    def _landed(self, name: str, data: bytes) -> None:
        number = int(name.rpartition("/")[2].removesuffix(".json"))
        if number != len(self._versions):
            raise Violation(f"version {number} of the table landed behind {len(self._versions)}")
        head = topic_table.head_of(number, data, name)
        tip = head.point.tip
        kind = "closes" if head.closed else "is published"
        self._world.tell("land", "table", f"version {number} {kind} at {tip}")
        self._world.count(f"table {kind}")
        if tip < self._tip:
            raise Violation(f"version {number} has the state at {tip}, after one at {self._tip}")
        self._tip = tip
        self._apply(number, [json.loads(line) for line in data.splitlines()])
        self._versions.append((self._world.now_ms, frozenset(self._live)))
        self._check(number, head)

    def _apply(self, number: int, actions: list[dict[str, Any]]) -> None:
        removes = [action["remove"] for action in actions if "remove" in action]
        adds = [action["add"] for action in actions if "add" in action]
        for remove in removes:
            if remove["path"] not in self._live:
                raise Violation(f"version {number} removes {remove['path']}, which it has not")
            self._live.remove(remove["path"])
        for add in adds:
            if add["path"] in self._live:
                raise Violation(f"version {number} adds {add['path']} again")
            if f"{self._folder}/{add['path']}" not in self._world.files:
                raise Violation(f"version {number} names {add['path']}, which is not there")
            self._live.add(add["path"])
        if any(remove["dataChange"] for remove in removes):
            self._world.count("table removes")
            if any(add["dataChange"] for add in adds):
                raise Violation(f"version {number} has new records that a stream skips")
        new = [self._offsets(add["path"]) for add in adds if add["dataChange"]]
        kept = [self._offsets(add["path"]) for add in adds if not add["dataChange"]]
        fresh = set().union(*new)
        if fresh & self._streamed:
            raise Violation(f"a stream gets records of version {number} twice")
        if not set().union(*kept) <= self._streamed:
            raise Violation(f"a stream never gets some records of version {number}")
        self._streamed |= fresh

    def _offsets(self, path: str) -> set[tuple[int, int]]:
        name = names.parse_segment(f"{self._folder}/{path}")
        assert name is not None and name.base is not None and name.end is not None
        return {(name.partition, offset) for offset in range(name.base, name.end)}

    def _check(self, number: int, head: topic_table.Head) -> None:
        if head.point.tip >= len(self._oracle.states):
            raise Violation(f"version {number} has a state that the chain never had")
        state = self._oracle.states[head.point.tip]
        wanted = state.alive and settings_of(state.config).has_table
        if wanted == head.closed:
            raise Violation(f"version {number} {'closes' if wanted else 'is published by'} a table")
        if head.closed:
            self._streamed.clear()  # A stream can't read past it.
            if self._live:
                raise Violation(f"version {number} closes the table, and files are left")
            return
        live = [e for part in state.parts for e in part.tail]
        meant = {topic_table.path_of(extent) for extent in files(state, head.point.ends, live)}
        if meant != self._live:
            raise Violation(
                f"version {number} has other files than the log at {head.point.tip}: "
                f"{sorted(meant ^ self._live)}"
            )
        there = set().union(*map(self._offsets, self._live))
        for partition, end in enumerate(head.point.ends):
            want = {(partition, offset) for offset in range(state.start(partition), end)}
            if want != {place for place in there if place[0] == partition}:
                raise Violation(f"version {number} lacks records of partition {partition}")

    def _deleted(self, name: str) -> None:
        path = name.partition("/")[2]
        for number, (_, named) in enumerate(self._versions):
            is_newest = number == len(self._versions) - 1
            until = self._world.now_ms if is_newest else self._versions[number + 1][0]
            if path in named and (is_newest or until > self._world.now_ms - self._grace):
                raise Violation(f"{name} was deleted, and version {number} of the table names it")
