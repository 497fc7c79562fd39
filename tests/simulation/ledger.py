"""What is held against the groups of a history: the facts as they landed, and who read what.

Invariants that it checks, at once when they could break:

1. Facts land at the next version. A commit's member owns the partition at that very version,
   and its progress has followed the partition's last reset.
2. A position goes back only by a reset, or when another query took the group over whose own
   checkpoint lies further back.
3. Nobody commits what it has not processed: a worker what it was given, a query the batches
   that ended.
4. What a member is given begins where the group stood since it took the partition, goes on
   without a gap, and is what was written.
5. Nobody is fenced who holds what it commits.
6. A query that may not take a group over expels no owner of another checkpoint that has beaten
   within its session timeout. (Where there are no faults: a query that is frozen after it has
   looked may do so.)
7. As a Delta table: a version names files that are there, of its own facts; a compaction replaces
   live files by the very same facts.
"""

from __future__ import annotations

from collections.abc import Iterable

from offsetlog.core.group.facts import Fact, FactKind
from offsetlog.core.group.fold import fold
from offsetlog.core.group.state import EMPTY, GroupsState, GroupState
from offsetlog.format import delta_log
from offsetlog.format import facts_arrow as fact_rows
from offsetlog.storage.offsets.port import HEARTBEATS
from tests.simulation.oracle import Oracle, Row
from tests.simulation.world import Violation, World
from tests.storage.faults import NO_FAULTS

FOLDER = "__consumer_offsets"
POLITE = "polite"
LOOKED_MS = 2_000
"""An owner that first beat so shortly before was not beating yet when the other query looked, which
may have lost some races since."""
"""How the names of queries begin that may not take their group over."""
Tp = tuple[str, int]


class Ledger:
    def __init__(self, world: World, oracle: Oracle, is_delta: bool = False) -> None:
        self.world = world
        self.is_delta = is_delta
        self._live: dict[str, tuple[Fact, ...]] = {}
        """The facts of the data files that the newest version names."""
        self.oracle = oracle
        self.tables: list[GroupsState] = [EMPTY]
        """By version + 1."""
        self._processed: dict[tuple[str, int], int] = {}
        """(member, partition) -> the highest offset that it may commit."""
        self._beaten_at: dict[str, int] = {}
        self._began_at: dict[str, int] = {}
        """When each member beat first."""
        """Member -> when its heartbeat landed last."""
        before = world.watch

        def watch(what: str, name: str, data: bytes | None) -> None:
            before(what, name, data)
            if name.startswith(f"{FOLDER}/{HEARTBEATS}/") and data is not None:
                member = name.rpartition("/")[2]
                self._beaten_at[member] = world.now_ms
                self._began_at.setdefault(member, world.now_ms)
            log = f"{FOLDER}/{delta_log.LOG}/" if is_delta else f"{FOLDER}/_log/"
            if name.startswith(log) and what == "create" and data is not None:
                self._landed(name, data)

        world.watch = watch

    @property
    def truth(self) -> GroupsState:
        return self.tables[-1]

    # --- facts -----------------------------------------------------------------------------

    def _landed(self, name: str, data: bytes) -> None:
        version = int(name.rpartition("/")[2].removesuffix(".json"))
        if version != len(self.tables) - 1:
            raise Violation(f"facts landed at {version}, and the table is at {self.truth.version}")
        before = self.truth
        facts: tuple[Fact, ...] = ()
        if self.is_delta:
            facts = self._of_version(version, name, data)
        elif version:
            facts = fact_rows.decode_facts(data, name)
        void: list[str] = []
        after = fold(before, facts, version, lambda fact, why: void.append(f"{fact.kind}: {why}"))
        self.tables.append(after)
        if void:
            raise Violation(f"version {version} holds facts that do not count: {void}")
        for fact in facts:
            self._fact(before.group(fact.group), after.group(fact.group), fact)
        for group in after.groups.values():
            self._moves(before.group(group.name), group, facts)

    def _of_version(self, version: int, name: str, data: bytes) -> tuple[Fact, ...]:
        """The facts that a version of Delta's log adds."""
        added: list[Fact] = []
        moved: list[Fact] = []
        removed: list[Fact] = []
        for action in delta_log.actions_of(data, name):
            if "remove" in action:
                path = action["remove"]["path"]
                if path not in self._live:
                    raise Violation(f"version {version} replaces {path}, which is not live")
                removed += self._live.pop(path)
            if "add" in action:
                path = action["add"]["path"]
                file = self.world.files.get(f"{FOLDER}/{path}")
                if file is None:
                    raise Violation(f"version {version} names {path}, which is not there")
                facts = fact_rows.facts_of(fact_rows.open_file(file.data, path), -1)
                self._live[path] = tuple(facts)
                (added if action["add"]["dataChange"] else moved).extend(facts)
        if sorted(removed, key=_place) != sorted(moved, key=_place):
            raise Violation(f"version {version} is a compaction that changes facts")
        strange = [fact.version for fact in added if fact.version != version]
        if strange:
            raise Violation(f"version {version} holds facts that were decided for {strange}")
        if removed:
            self.world.count("compaction")
        return tuple(added)

    def _fact(self, before: GroupState, after: GroupState, fact: Fact) -> None:
        tp = (fact.topic or "", -1 if fact.partition is None else fact.partition)
        self.world.count(f"fact {fact.kind}")
        told = f"{fact.kind} of {fact.member} at version {fact.version}"
        if fact.kind == FactKind.JOIN and self.world.faults == NO_FAULTS:
            self._check_owner(before, after, fact, told)
        if fact.kind in (FactKind.COMMIT, FactKind.RELEASE) and fact.member is not None:
            member = before.members.get(fact.member)
            if member is None:
                raise Violation(f"{told}: it is no member")
            holder = before.holders.get(tp)
            alone = member.subscription.alone
            if not alone and (holder is None or holder.member != fact.member):
                raise Violation(f"{told}: {tp} is held by {holder}")
            if fact.offset is not None and fact.reset < before.last_reset.get(tp, 0):
                raise Violation(f"{told}: {tp} was reset since")
            if fact.offset is not None:
                self._check_processed(before, fact, tp, told)

    def _check_owner(self, before: GroupState, after: GroupState, fact: Fact, told: str) -> None:
        owner, new = before.owner, after.owner
        if owner is None or new is None or not new.name.startswith(POLITE):
            return
        if owner.subscription.checkpoint == new.subscription.checkpoint or owner.name == new.name:
            return
        self.world.count("polite takeover")
        silent_ms = self.world.now_ms - self._beaten_at.get(owner.name, 0)
        if self.world.now_ms - self._began_at.get(owner.name, 0) < LOOKED_MS:
            return
        if silent_ms < owner.subscription.session_ms:
            raise Violation(f"{told}: {owner.name} lives, and has beaten {silent_ms} ms ago")

    def _check_processed(self, before: GroupState, fact: Fact, tp: Tp, told: str) -> None:
        assert fact.member is not None and fact.offset is not None
        known = before.positions.get(tp)
        most = self._processed.get((fact.member, tp[1]))
        if known is not None and fact.offset == known.offset:
            return
        if most is None or fact.offset > most:
            raise Violation(f"{told}: commits {fact.offset} of {tp}, and has processed to {most}")

    def _moves(self, before: GroupState, after: GroupState, facts: tuple[Fact, ...]) -> None:
        by_reset = {
            (f.topic, f.partition)
            for f in facts
            if f.group == after.name and f.kind == FactKind.RESET
        }
        for tp, position in after.positions.items():
            known = before.positions.get(tp)
            if known is None or position.offset >= known.offset or tp in by_reset:
                continue
            owner = after.owner
            if owner is not None and owner.name == position.member != known.member:
                continue  # another query owns the group now, and has read less
            raise Violation(
                f"{tp} of {after.name} went back from {known.offset} to {position.offset} "
                "without a reset"
            )

    # --- what members were given -----------------------------------------------------------

    def give(self, member: str, partition: int, start: int, rows: list[Row]) -> None:
        """A worker was given records: they are what was written, and begin where it stood."""
        end = start + len(rows)
        self.oracle.read(partition, start, end, list(enumerate(rows, start)))
        if self._processed.get((member, partition)) != start:
            self._check_begin(member, partition, start)
        self._processed[member, partition] = end

    def stands(self, member: str, partition: int, position: int) -> None:
        """Where a worker stands after a poll: that is what it may commit."""
        if self._processed.get((member, partition)) != position:
            self._check_begin(member, partition, position)
            self._processed[member, partition] = position

    def _check_begin(self, member: str, partition: int, offset: int) -> None:
        """A worker begins where its group stood at some time since it first held the partition,
        or at the log's start while it stood nowhere."""
        tp = ("t", partition)
        held = False
        for table in self.tables:
            for group in table.groups.values():
                holder = group.holders.get(tp)
                held = held or (holder is not None and holder.member == member)
                position = group.positions.get(tp)
                if held and offset == (0 if position is None else position.offset):
                    return
        raise Violation(
            f"{member} begins at {offset} of {partition}, where its group did not stand since"
            if held
            else f"{member} is given records of {partition}, which it never held"
        )

    def fenced(self, member: str, partitions: Iterable[Tp], since: int) -> None:
        """Who was fenced did not hold what it committed, at some moment since it asked."""
        for table in self.tables[since:]:
            for group in table.groups.values():
                if member in group.members:
                    break
            else:
                return
            for tp in partitions:
                holder = group.holders.get(tp)
                if holder is None or holder.member != member:
                    return
        raise Violation(f"{member} was fenced, and held all that it committed")

    def done(self, member: str, ends: dict[int, int]) -> None:
        """A query ended a batch."""
        for partition, end in ends.items():
            self._processed[member, partition] = end


def _place(fact: Fact) -> tuple[int, int]:
    return fact.version, fact.place
