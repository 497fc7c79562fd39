"""The generator *other people's tools*: OPTIMIZE, Z-ORDER, VACUUM, RESTORE, DELETE, added columns,
checkpoints and deletion vectors by others, in random order beside commits, resets and our upkeep.

At each moment every program, whatever it knows already, sees the positions that the rows of the
table add up to, or gets a clear error; what was done can be taken back by the tool that did it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

import offsetlog
from offsetlog.errors import InvalidRequestError
from offsetlog.format import delta_log
from offsetlog.storage.delta.table import DeltaOffsets
from tests.generators.registry import OPERATIONS, Bug
from tests.simulation.planting import patched

STEPS = 30
GROUPS = ("g", "h", "i")
Positions = dict[tuple[str, int], int]


class History:
    """One table, what its rows are to add up to, and programs that look at it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.root = folder / "log"
        self.place = self.root / "__consumer_offsets"
        self.log = offsetlog.open(str(self.root))
        self.log.create_topic("t", partitions=3)
        with self.log.producer() as producer:
            for number in range(30):
                producer.send("t", b"%d" % number, partition=number % 3).result()
        self.bystander = offsetlog.open(str(self.root))
        self.now: Positions = {}
        self.at: dict[int, Positions] = {}
        self.refused: set[int] = set()
        self.stale: DeltaTable | None = None
        self.columns = 0
        self.met: list[str] = []
        self.commit()
        self.note()

    def close(self) -> None:
        self.log.close()
        self.bystander.close()

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(str(self.place))

    def note(self) -> None:
        newest = max(self.at, default=-1)
        for version in range(newest + 1, self.table.version() + 1):
            self.at[version] = dict(self.now)

    # --- ours ------------------------------------------------------------------------------

    def commit(self) -> None:
        group, partition = self.rng.choice(GROUPS), self.rng.randrange(3)
        offset = self.rng.randrange(11)
        log = self.rng.choice((self.log, self.bystander))
        with log.consumer(group, enable_auto_commit=False) as consumer:
            consumer.assign([("t", partition)])
            consumer.commit({("t", partition): offset})
        self.now[group, partition] = offset

    def reset(self) -> None:
        group, to = self.rng.choice(GROUPS), self.rng.choice(("earliest", "latest"))
        self.log.group(group).reset("t", to=to, dry_run=False)
        for partition in range(3):
            self.now[group, partition] = 0 if to == "earliest" else 10

    def maintain(self) -> None:
        self.log.maintain(grace_ms=0)

    def compact(self) -> None:
        self.log.offsets_table.port.tidy()

    # --- other people's --------------------------------------------------------------------

    def optimize(self) -> None:
        self.table.optimize.compact()

    def z_order(self) -> None:
        self.table.optimize.z_order(["group"])

    def plan(self) -> None:
        self.stale = self.table

    def optimize_as_planned(self) -> None:
        """It lands beside a compaction of ours: rows are there twice."""
        if self.stale is not None:
            with contextlib.suppress(Exception):  # It may refuse.
                self.stale.optimize.compact()

    def optimize_beside(self) -> None:
        self.plan()
        self.compact()
        self.optimize_as_planned()

    def vacuum(self) -> None:
        self.table.vacuum(
            retention_hours=self.rng.choice((0, 200)),
            dry_run=False,
            enforce_retention_duration=False,
            full=self.rng.random() < 0.5,
        )

    def checkpoint(self) -> None:
        self.table.create_checkpoint()

    def clean(self) -> None:
        self.table.cleanup_metadata()

    def add_column(self) -> None:
        self.columns += 1
        self.table.alter.add_columns([Field(f"extra{self.columns}", PrimitiveType("string"))])

    def set_property(self) -> None:
        self.table.alter.set_table_properties({"delta.checkpointInterval": "7"})

    def restore(self) -> None:
        table = self.table
        version = self.rng.choice([v for v in self.at if v > 0 and v not in self.refused][-12:])
        try:
            table.restore(version)
        except Exception:  # noqa: BLE001 - its files, or its log, may be gone
            return
        self.now = dict(self.at[version])
        self.stale = None  # What was planned before would put back what is taken out here.

    def delete_rows(self) -> None:
        group = self.rng.choice(GROUPS)
        self.table.delete(f"\"group\" = '{group}'")
        self.now = {key: offset for key, offset in self.now.items() if key[0] != group}
        self.stale = None

    def deletion_vector(self) -> None:
        """As delta-spark writes one; refused by name for as long as it is in force."""
        version = self.table.version()
        if not self.table.file_uris():
            return  # Every row was deleted.
        name = os.path.basename(self.table.file_uris()[0])
        add = self._add_of(name)
        vector = {"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72",
                  "sizeInBytes": 40, "cardinality": 1}  # fmt: skip
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7,
                    "readerFeatures": ["deletionVectors"],
                    "writerFeatures": ["deletionVectors", "invariants", "appendOnly"]}  # fmt: skip
        removed = {"path": name, "deletionTimestamp": int(time.time() * 1000), "dataChange": True}
        self.refused.add(version + 1)
        self._put(version + 1, {"protocol": protocol}, {"remove": removed},
                  {"add": {**add, "deletionVector": vector, "dataChange": True}})  # fmt: skip
        for look in (self.log, self.bystander, offsetlog.open(str(self.root))):
            _is_refused(look.groups)
            _is_refused(lambda look=look: look.group("g").reset("t", to="latest", dry_run=False))  # type: ignore[misc]
        self._put(version + 2, {"remove": {**removed, "deletionVector": vector}},
                  {"add": {**add, "dataChange": True}})  # fmt: skip

    def _add_of(self, name: str) -> dict[str, Any]:
        for path in sorted((self.place / "_delta_log").glob("0*.json"), reverse=True):
            for line in path.read_text().splitlines():
                add = json.loads(line).get("add")
                if add and add["path"] == name:
                    return dict(add)
        size = (self.place / name).stat().st_size
        return {"path": name, "size": size, "partitionValues": {}, "modificationTime": 1}

    def _put(self, version: int, *actions: dict[str, Any]) -> None:
        text = "".join(json.dumps(action) + "\n" for action in actions)
        (self.place / "_delta_log" / f"{version:020d}.json").write_text(text)

    # --- what must hold --------------------------------------------------------------------

    def step(self) -> None:
        ours: list[Callable[[], None]] = [self.commit] * 6 + [self.reset] * 2
        ours += [self.maintain, self.compact]
        theirs = [self.optimize, self.z_order, self.plan, self.optimize_as_planned,
                  self.optimize_beside, self.optimize_beside, self.vacuum,
                  self.checkpoint, self.clean, self.add_column, self.set_property, self.restore,
                  self.restore, self.delete_rows, self.deletion_vector]  # fmt: skip
        chosen = self.rng.choice(ours if self.rng.random() < 0.5 else theirs)
        if self.columns and chosen == self.deletion_vector:
            chosen = self.commit
        self.met.append(chosen.__name__)
        chosen()
        self.note()
        self.check()

    def check(self) -> None:
        if self.rng.random() < 0.3:
            shutil.rmtree(self.place / "_state", ignore_errors=True)
        with offsetlog.open(str(self.root)) as fresh:
            for who, log in (("writer", self.log), ("bystander", self.bystander), ("new", fresh)):
                rows = log.positions().to_pylist()
                seen = {(row["group"], row["partition"]): row["offset"] for row in rows}
                assert seen == self.now, (who, self.met[-8:])


def _is_refused(ask: Callable[[], object]) -> None:
    try:
        ask()
    except InvalidRequestError as error:
        assert "deletion vector" in str(error), error
    else:
        raise AssertionError("rows that a deletion vector takes out were counted")


def history(seed: int, folder: Path) -> Counter[str]:
    """One history; what is wrong is raised."""
    steps = History(folder, seed)
    try:
        for _ in range(STEPS):
            steps.step()
        ours = ("commit", "reset", "maintain", "compact")
        counts = Counter({OPERATIONS: sum(name in ours for name in steps.met)})
        counts.update(name for name in steps.met if name not in ours)
        return counts
    finally:
        steps.close()


# --- planted bugs --------------------------------------------------------------------------

_real_checked = DeltaOffsets._checked


def _refuse_equal_rows(self: Any, version: int, since: int, facts: list[Any]) -> Any:
    if len({(fact.version, fact.place) for fact in facts}) < len(facts):
        raise offsetlog.CorruptLogError("a fact twice")
    return _real_checked(self, version, since, facts)


PLANTED = {
    "rows taken out are not noticed": Bug(
        lambda: patched([(delta_log, "changes_rows", lambda actions: False)])
    ),
    "equal rows are refused": Bug(
        lambda: patched([(DeltaOffsets, "_checked", _refuse_equal_rows)])
    ),
}
