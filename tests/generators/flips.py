"""One flipped bit at a time: in the Delta logs of a topic and of the groups, judged by a reader of
Delta that is not ours, and in the notes of upkeep, judged by what an erasure leaves.

1. Where the reader gives other rows, or none, ``verify`` names something; where it names caches
   alone, the reader is right again without them.
2. Whatever a note says, no entry holds an erased value some rounds of upkeep later.

``python -m tests.generators.flips`` is the reader: it answers for the roots that it is told.
"""

from __future__ import annotations

import atexit
import hashlib
import itertools
import random
import re
import select
import shutil
import subprocess
import sys
import tempfile
import uuid
import warnings
from collections import Counter
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path

import deltalake
import pyarrow as pa

import offsetlog
from offsetlog.client.log import Log
from offsetlog.engine.env import REAL
from offsetlog.engine.topic import topic_table
from offsetlog.engine.upkeep.findings import BROKEN, CACHES, delete_caches, status_of
from offsetlog.engine.upkeep.maintenance import Maintenance
from offsetlog.storage import open_store
from tests.simulation.planting import patched

FLIPS, NOTE_FLIPS = 32, 3
ROUNDS = 5
BEGAN_MS = 1_780_000_000_000
SECONDS = 30
ERASED = b"what-was-erased"
TABLES = ("t", "__consumer_offsets")
REPOSITORY = Path(__file__).parents[2]
_STACK = ExitStack()
atexit.register(_STACK.close)


@cache
def template() -> Path:
    """A root with a topic that is a table, groups, and a topic with entries that are to be erased.
    Its names and times are the same each time."""
    folder = Path(tempfile.mkdtemp(prefix="offsetlog-flips-"))
    _STACK.callback(shutil.rmtree, folder, ignore_errors=True)
    ids, clock = random.Random("flips"), itertools.count(BEGAN_MS, 1000)
    env = REAL._replace(
        now_ms=partial(next, clock),
        now_ns=None,
        chance=ids.random,
        new_id=lambda: ids.randbytes(16).hex(),
        spawn=lambda work, name: work(),
    )
    patches = [
        (uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128))),
        (Maintenance, "_storage_now", lambda self: next(clock)),
        (topic_table, "FEW_VERSIONS", 12),
    ]
    with patched(patches), Log(open_store(str(folder)), env) as log:
        log.create_topic("t", partitions=2, config={"table.format": "delta"})
        log.create_topic("w", config={"compression.type": "none"})
        with log.producer() as producer:
            for number in range(12):
                producer.send("w", b"%d" % number, key=b"k").result()
        for number in range(12):
            with log.producer() as producer:
                for count in range(10):
                    producer.send("t", b"%d-%d" % (number, count), key=b"k%d" % count)
            if number % 3 == 0:
                log.group("g").reset("t", to="latest", dry_run=False)
                log.topic("t").delete_records({0: number})
            log.maintain(grace_ms=0)
        for number in range(4):
            log.group("g").reset("t", to="earliest", dry_run=False)
            with log.producer() as producer:
                for count in range(4):
                    producer.send("t", b"%d-%d" % (number, count), key=b"k%d" % count)
            log.maintain("t", grace_ms=0)
        with log.producer() as producer:
            for _ in range(10):
                producer.send("w", ERASED, key=b"erased").result()
    return folder


# --- the reader ----------------------------------------------------------------------------


def told(path: Path) -> str:
    """What a reader of Delta says of a table, in few words."""
    try:
        table = deltalake.DeltaTable(str(path))
        found = deltalake.QueryBuilder().register("t", table).execute("select * from t")
        rows = pa.table(found.read_all()).to_pylist()
        text = "\n".join(sorted(map(repr, rows)))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a panic is no Exception
        return f"an error: {str(error)[:200]!r}"


class Reader:
    """A process of its own, which may die or hang."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.generators.flips"],
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        return self._process

    def read(self, root: Path) -> str:
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{root}\n")
        process.stdin.flush()
        if not select.select([process.stdout], [], [], SECONDS)[0]:
            self.close()
            return "it hangs"
        line = process.stdout.readline()
        if not line:
            self.close()
            return "it died"
        return line

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@cache
def reader() -> Reader:
    made = Reader()
    _STACK.callback(made.close)
    return made


# --- histories -----------------------------------------------------------------------------


_TOKEN = re.compile(rb'(?<=")[^"\\\\]+(?=")|[0-9]+')


_NUMBER = re.compile(rb"(?<=:)[0-9]{1,6}(?=[,}])")


def flipped(chance: random.Random, path: Path, part: re.Pattern[bytes] | None = None) -> str:
    """Flip a bit of a file, half of the time in some word or number of it, long or short; which
    one."""
    data = bytearray(path.read_bytes())
    first, last = 0, len(data)
    if part is None and path.suffix != ".parquet" and chance.random() < 0.5:
        part = _TOKEN
    if part is not None:
        first, last = chance.choice([token.span() for token in part.finditer(data)])
    bit = chance.randrange(8 * first, 8 * last)
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    return f"bit {bit % 8} of byte {bit // 8} of {path.name}"


def kinds(root: Path) -> list[list[Path]]:
    """The files of both Delta logs: checkpoints, notes and versions, most of them those that a
    reader begins with."""
    out: list[list[Path]] = []
    for table in TABLES:
        log = root / table / "_delta_log"
        out += [[log / "_last_checkpoint"], sorted(log.glob("*.checkpoint.parquet"))[-1:]]
        out += [sorted(log.glob("*.checkpoint.parquet")), sorted(log.glob("*.json"))]
        behind = [path for path in out[-1] if path.stem > out[-2][-1].name[:20]]
        out += [behind, behind, behind]
    return out


def history(seed: int, folder: Path) -> Counter[str]:
    """One history; what is wrong is raised."""
    chance = random.Random(seed)
    root = folder / "root"
    shutil.copytree(template(), root)
    counts: Counter[str] = Counter()
    right = reader().read(root)
    assert "error" not in right, right
    for _ in range(FLIPS):
        counts["flips"] += 1
        path = chance.choice(chance.choice(kinds(root)))
        before = path.read_bytes()
        which = flipped(chance, path)
        answer = reader().read(root)
        if answer == right:
            counts["read as before"] += 1
        else:
            counts["read otherwise"] += 1
            named(root, which, answer, right, counts)
        path.write_bytes(before)
    note_flips(seed, folder / "notes")
    counts["flipped notes"] += NOTE_FLIPS
    return counts


def note_flips(seed: int, root: Path) -> None:
    chance = random.Random(f"notes-{seed}")
    for _ in range(NOTE_FLIPS):
        note_flip(chance, root)


def named(root: Path, which: str, answer: str, right: str, counts: Counter[str]) -> None:
    with offsetlog.open(str(root)) as log:
        reports = log.verify()
        status = status_of(reports)
        assert status in (BROKEN, CACHES), f"{which}: verify says nothing of it: {answer[:300]}"
        counts["named as " + ("faults" if status == BROKEN else "caches")] += 1
        if status == BROKEN:
            return
        gone = {fault.file: (root / fault.file).read_bytes() for r in reports for fault in r.caches}
        for report in reports:
            delete_caches(log.store, report)
    answer = reader().read(root)
    assert answer == right, f"{which}: without the caches {sorted(gone)} it reads {answer[:300]}"
    for name, data in gone.items():
        (root / name).write_bytes(data)


def note_flip(chance: random.Random, root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(template(), root)
    names = ("stubs", "stubs", "stubs", "hint")
    notes = [root / "w" / "_snapshot" / f"{name}.json" for name in names]
    which = flipped(chance, chance.choice(notes), chance.choice((None, _NUMBER, _NUMBER)))
    with offsetlog.open(str(root)) as log, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log.topic("w").erase(keys=[b"erased"])
        for _ in range(ROUNDS):
            log.maintain("w", grace_ms=0)
    files = [path for path in (root / "w").rglob("*") if path.is_file()]
    left = [path.name for path in files if ERASED in path.read_bytes()]
    assert not left, f"{which}: {len(left)} files hold an erased value: {left[:3]}"


if __name__ == "__main__":
    for line in sys.stdin:
        print("|".join(told(Path(line.strip()) / table) for table in TABLES), flush=True)
