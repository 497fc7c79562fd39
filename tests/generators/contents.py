"""Contents: files that nobody of ours wrote, at every name, on a local disk and behind real sftp
and SMB servers.

A history copies a root that has every stored kind of file, changes one thing a few times, and asks
all that a user asks of a log. The structure is kept and numbers and texts are wild: footers, pages,
decisions, notes, versions, facts and checkpoints are changed under sums that are right again. Or a
file is cut, swapped, endless, or no file: a folder, a pipe, a socket, a link to what is outside.

Every eighth history flips bits instead, one at a time (``flips``).

The asking is done by a forked child under a limit of memory. Each answer is the right thing or an
error of ours; the child neither dies nor hangs nor grows beyond the budget; and what lies outside
the root is neither told, written nor deleted.
"""

from __future__ import annotations

import atexit
import faulthandler
import itertools
import json
import os
import random
import resource
import shutil
import signal
import stat
import tempfile
import time
import traceback
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

import offsetlog
from offsetlog.client.log import Log
from offsetlog.engine.env import REAL, Limits
from offsetlog.engine.upkeep.verify_table import TableCheck
from offsetlog.errors import OffsetLogError
from offsetlog.format import delta_log, notes, parquet
from offsetlog.storage import open_store
from offsetlog.storage.local import disk, files
from tests.format import forge
from tests.format.junk import mutated
from tests.generators import flips
from tests.generators.registry import OPERATIONS, Bug
from tests.servers import samba, sftp_server
from tests.simulation.planting import Patch, patched

MIB = 1 << 20
ROOM = 3 << 30
"""Of addresses, beyond what the process has."""
MOST_GROWTH = 700 * MIB
SECONDS = 60
IDLE_SECONDS = 10
CASES = 4
BEGAN_MS = 1_780_000_000_000
SECRET = b"what-lies-outside"
Place = tuple[str, dict[str, object], Path]
"""URL, options, and the folder where its files lie."""

_STACK = ExitStack()
atexit.register(_STACK.close)

_OWNER = os.getpid()


# --- what is changed -----------------------------------------------------------------------


@cache
def template(kind: str) -> Path:
    """A root with every stored kind of file; its offsets table is Delta's, or a chain. Its names
    are the same each time, since a history chooses among them."""
    folder = Path(tempfile.mkdtemp(prefix="offsetlog-contents-"))
    _STACK.callback(shutil.rmtree, folder, ignore_errors=True)
    store = open_store(str(folder))
    if kind == "chain":
        store.delta_address = lambda folder: None  # type: ignore[method-assign]
    ids = random.Random(kind)
    offsets_ids: Patch = (uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128)))
    env = REAL._replace(
        limits=Limits(many_senders=5),
        now_ms=partial(next, itertools.count(BEGAN_MS)),
        now_ns=None,
        chance=ids.random,
        new_id=lambda: ids.randbytes(16).hex(),
        spawn=lambda work, name: work(),
    )
    with patched([offsets_ids]), Log(store, env) as log, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log.create_topic("t", partitions=2, config={"retention.ms": -1})
        log.create_topic("u", config={"max.message.bytes": 4 * MIB, "retention.ms": -1})
        with log.producer() as producer:
            for number in range(12):
                headers = [("h", b"1"), ("e", None)] if number % 3 else None
                producer.send("t", b"%d" % number, key=b"k%d" % (number % 5), headers=headers)
                producer.flush()
            producer.send("t", bytes(400_000), partition=0).result()
        for number in range(8):
            with log.producer(app_id=f"app-{number}", sequence=1) as keyed:
                keyed.send("u", b"%d" % number)
        log.maintain(grace_ms=0)
        with log.producer() as producer:
            producer.send("t", bytes(300_000), partition=1).result()
        for number in range(8):
            with log.consumer("g", auto_offset_reset="earliest") as consumer:
                consumer.assign([("t", 0), ("u", 0)])
                consumer.commit({("t", 0): number % 4, ("u", 0): number})
        log.group("g").reset("t", to="earliest", dry_run=False)
        log.maintain(grace_ms=0)
    return folder


class Change:
    """One thing changed in a root."""

    def __init__(self, chance: random.Random, root: Path, outside: Path) -> None:
        self.chance = chance
        self.root = root
        self.outside = outside
        self.what = ""

    def make(self) -> str:
        paths = sorted(path for path in self.root.rglob("*") if path.is_file())
        path = self.chance.choice(self.of_kinds(paths))
        ways: list[Callable[[Path], None]] = [self.kind, self.kind, self.bytes, self.number]
        if path.suffix == ".parquet":
            ways += [self.footer, self.page, self.bomb, self.json] * 2
        else:
            ways += [self.json] * 3
        way = self.chance.choice(ways)
        self.what = f"{way.__name__} of {path.relative_to(self.root)}"
        # A parser of Thrift may have nothing to change in what was changed before.
        with suppress(IndexError, StopIteration, KeyError, ValueError):
            way(path)
        return self.what

    def of_kinds(self, paths: list[Path]) -> list[Path]:
        """A file of each folder: entries are many, and notes are few."""
        kinds: dict[tuple[str, str], list[Path]] = {}
        for path in paths:
            kinds.setdefault((str(path.parent), path.suffix), []).append(path)
        return [self.chance.choice(together) for together in kinds.values()]

    # -- the file itself

    def kind(self, path: Path) -> None:
        """Another kind of thing at the name, or a link at the name of the folder above it."""
        links = ["out", "back", "back", "loop", "nowhere"]
        way = self.chance.choice(["folder", "pipe", "pipe", "pipe", "socket", *links, ""])
        if way not in ("pipe", "socket") and self.chance.random() < 0.5:
            path = path if path.parent == self.root else path.parent
        aside = self.outside / f"aside-{self.chance.randrange(10**9)}"
        path.rename(aside)
        self.what += f": {path.name} is {way or 'gone'}"
        if way == "folder":
            path.mkdir()
        elif way in ("pipe", "socket"):
            os.mknod(path, 0o600 | (0o10000 if way == "pipe" else 0o140000))
        elif way:
            where = {"back": aside, "loop": path, "nowhere": self.root / "nowhere"}
            outer = self.outside / ("folder" if aside.is_dir() else "file")
            path.symlink_to(where.get(way, outer))

    def bytes(self, path: Path) -> None:
        data = bytearray(path.read_bytes())
        way = self.chance.choice(["flip", "cut", "empty", "swap", "endless", "text"])
        self.what += f", {way}"
        if way == "flip":
            for _ in range(self.chance.randint(1, 4)):
                data[self.chance.randrange(len(data))] = self.chance.randrange(256)
            data = bytearray(forge.sealed_again(bytes(data)))
        elif way == "cut":
            del data[self.chance.randrange(len(data)) :]
        elif way == "empty":
            data.clear()
        elif way == "swap":
            others = [other for other in self.root.rglob("*") if other.is_file()]
            data = bytearray(self.chance.choice(others).read_bytes())
        elif way == "text":
            data = bytearray(self.chance.randbytes(40))
        path.write_bytes(data)
        if way == "endless":
            os.truncate(path, 20 << 30)

    def number(self, path: Path) -> None:
        """The same under another number or name of its kind."""
        digits = "".join(letter for letter in path.stem if letter.isdigit())
        if not digits:
            return
        number = self.chance.choice([0, 1, int(digits[-9:]) + 1, 10**18, 2**63, 10**20 - 1])
        other = path.with_name(path.name.replace(digits, str(number).zfill(len(digits))))
        if not other.exists():
            (shutil.copy2 if self.chance.random() < 0.5 else shutil.move)(path, other)

    # -- Parquet under a good seal

    def footer(self, path: Path) -> None:
        data = path.read_bytes()
        footer, start = forge.footer_of(data)
        for _ in range(self.chance.randint(1, 3)):
            self.wild(footer)
        self.write(path, forge.with_footer(data[:start], footer))

    def page(self, path: Path) -> None:
        """The header of a page, which moves to the end of the file."""
        data = path.read_bytes()
        name, chunk = self.column(data)
        begin = chunk[9][2]
        header, end = forge.parse(data, begin)
        self.wild(header)
        rest = data[end : begin + chunk[7][2]]
        pages = forge.dump(header) + rest
        self.write(path, forge.with_column(data, name, pages, chunk[5][2], chunk[4][2]))

    def bomb(self, path: Path) -> None:
        """A page that says, or is, far more than it has."""
        data = path.read_bytes()
        name, chunk = self.column(data)
        values = chunk[5][2]
        size = self.chance.choice([200 * MIB, 1500 * MIB, 2**31 - 1])
        here = forge.levels(forge.run(values, 1))
        word = forge.page(
            forge.zstd_frame((60 * MIB).to_bytes(4, "little"), 60 * MIB), 60 * MIB + 4, 1, kind=2
        )
        indices = here + b"\x01" + forge.run(values, 0)
        some = forge.zstd_frame(indices)
        repeated = forge.page(some, len(indices), values, forge.RLE_DICTIONARY)
        long_page = forge.page(forge.zstd_frame(here, size - len(here)), size, values)
        lie = forge.page(here, size, values)
        pages, codec, apart = self.chance.choice(
            [
                (long_page, forge.ZSTD, 0),
                (word + repeated, forge.ZSTD, len(word)),
                (lie, forge.ZSTD, 0),
                (lie, forge.UNCOMPRESSED, 0),
            ]
        )
        self.write(path, forge.with_column(data, name, pages, values, codec, apart))

    def column(self, data: bytes) -> tuple[str, dict[int, Any]]:
        footer, _ = forge.footer_of(data)
        groups = next(field[2] for field in footer if field[0] == 4)[1]
        chunks = next(field[2] for field in groups[0] if field[0] == 1)[1]
        about = next(field[2] for field in self.chance.choice(chunks) if field[0] == 3)
        known = {field[0]: field for field in about}
        return b".".join(known[3][2][1]).decode(), known

    def wild(self, struct: forge.Struct) -> None:
        """A number, a text or a field of a tree of Thrift that is something else."""
        places = list(_places(struct))
        holder, key = self.chance.choice(places)
        kind, value = (holder[1], holder[2]) if key == 2 else (None, holder[key])
        if isinstance(value, int):
            holder[key] = self.chance.choice(
                [0, 1, -1, value + 1, value * 2, 2**31 - 1, 2**31, 2**62, 2**63 - 1, -(2**63)]
            )
        elif isinstance(value, bytes | bytearray) and kind in (None, forge.BINARY):
            holder[key] = self.chance.choice(
                [b"", b"\xff\xfe", b"x" * 5000, b"a.b", bytes(value)[:1]]
            )
        elif isinstance(value, tuple):
            inner, items = value
            holder[key] = (inner, items * 2 if self.chance.random() < 0.5 else items[1:])

    def write(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)
        if "partition=" in path.parent.name:
            self.tell_entries(path, data)

    def tell_entries(self, path: Path, data: bytes) -> None:
        """The entry that names a segment gets its size and its sum; what is stored of the state
        goes, since it has the old ones."""
        topic = path.parent.parent
        uid = path.stem.split("-")[1]
        foot = 8 + int.from_bytes(data[-8:-4], "little")
        for entry in (topic / "_log").rglob("*.parquet"):
            whole = entry.read_bytes()
            if uid.encode() not in whole:
                continue
            footer, start = forge.footer_of(whole)
            for pair in _pairs(footer):
                if pair[0][2] == b"offsetlog.decision":
                    decision = json.loads(pair[1][2])
                    _retell(
                        decision, uid, [len(data), foot, xxhash.xxh3_64_hexdigest(data[-foot:])]
                    )
                    pair[1][2] = json.dumps(decision).encode()
            entry.write_bytes(forge.with_footer(whole[:start], footer))
        for cache_folder in ("_snapshot", "_index"):
            shutil.rmtree(topic / cache_folder, ignore_errors=True)

    # -- JSON, wherever it is

    def json(self, path: Path) -> None:
        data = path.read_bytes()
        if path.suffix == ".parquet":
            footer, start = forge.footer_of(data)
            told = [pair for pair in _pairs(footer) if pair[1][2][:1] in (b"{", b"[")]
            pair = self.chance.choice(told)
            pair[1][2] = self.text(json.loads(pair[1][2])).encode("utf-8", "surrogatepass")
            self.write(path, forge.with_footer(data[:start], footer))
            return
        head, separator, body = data.partition(b"\n")
        if separator and len(head) == 16 and head[:1] != b"{":
            raw = self.text(json.loads(body)).encode("utf-8", "surrogatepass")
            path.write_bytes(xxhash.xxh3_64_hexdigest(raw).encode() + b"\n" + raw)
            return
        lines = data.split(b"\n")
        place = self.chance.randrange(len([line for line in lines if line]))
        lines[place] = self.text(json.loads(lines[place])).encode("utf-8", "surrogatepass")
        path.write_bytes(b"\n".join(lines))

    def text(self, value: Any) -> str:
        dice = self.chance.random()
        if dice < 0.06:
            return self.chance.choice(
                ["[" * 100_000, "[" + "[]," * 5_000_000 + "1]", '{"a":1,"a":2}', "1" * 5000, "NaN",
                 '{"v":1e999}']
            )  # fmt: skip
        for _ in range(self.chance.randint(1, 3)):
            value = mutated(self.chance, value)
        return json.dumps(value)


def _places(struct: forge.Struct) -> Iterator[tuple[list[Any], int]]:
    """Where in a tree of Thrift values are."""
    for field in struct:
        kind, value = field[1], field[2]
        yield field, 2
        if kind == forge.STRUCT:
            yield from _places(value)
        elif kind == forge.LIST:
            inner, items = value
            for place, item in enumerate(items):
                if inner == forge.STRUCT:
                    yield from _places(item)
                else:
                    yield items, place


def _pairs(footer: forge.Struct) -> list[Any]:
    return next((field[2][1] for field in footer if field[0] == 5), [])


def _retell(decision: Any, uid: str, known: list[Any]) -> None:
    if isinstance(decision, dict):
        decision = list(decision.values())
    if isinstance(decision, list):
        if len(decision) == 5 and decision[1] == uid:
            decision[2:] = known
        for item in decision:
            _retell(item, uid, known)


# --- what is asked -------------------------------------------------------------------------


def asks() -> list[Callable[[Log], object]]:
    def read(log: Log) -> object:
        consumer = log.consumer(auto_offset_reset="earliest")
        consumer.assign([("t", 0), ("t", 1), ("u", 0)])
        return [consumer.poll(0) for _ in range(4)]

    def send(log: Log) -> object:
        with log.producer() as producer:
            return producer.send("t", b"x", partition=0).result()

    def work(log: Log) -> object:
        with log.consumer("g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            return consumer.poll(0), consumer.commit()

    return [
        lambda log: log.topics(), lambda log: log.topic("t").end_offsets(),
        lambda log: log.topic("t").offsets_for_times({0: 5}), read, lambda log: log.verify(),
        lambda log: log.groups(), lambda log: log.group("g").describe(),
        lambda log: log.group("g").lag(), work, send, lambda log: log.maintain(grace_ms=0),
        lambda log: log.create_topic("new"), lambda log: log.delete_topic("u", purge=True), read,
    ]  # fmt: skip


def ask_all(place: Place, told: Counter[str]) -> str:
    """What was wrong with an answer; nothing where each was as it should be."""
    url, options, _ = place
    warnings.simplefilter("ignore")
    log: Log | None = None
    for ask in asks():
        began = time.monotonic()
        try:
            log = log or offsetlog.open(url, **options)
            answer = repr(ask(log))
            told["answers"] += 1
        except OffsetLogError as error:
            answer = str(error)
            told[type(error).__name__] += 1
            _closed(log)
            log = None
        except BaseException:  # noqa: BLE001 - told to the history
            return traceback.format_exc()[-3000:]
        if SECRET.decode() in answer:
            return f"what lies outside the root was told: {answer[:300]}"
        if time.monotonic() - began > (4 * SECONDS if options else SECONDS):
            return f"an answer took {time.monotonic() - began:.0f} s"
    return ""


def _closed(log: Log | None) -> None:
    """What a broken root makes of a log's end is an answer too."""
    with suppress(OffsetLogError):
        if log is not None:
            log.close()


def most_memory() -> int:
    status = Path("/proc/self/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def in_a_child(place: Place, told: Counter[str]) -> str:
    """Ask in a process of its own, which may die, hang or grow."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _answer(place, writer)
    os.close(writer)
    # Over the network one wait is bounded by a minute, and a request is tried again.
    idle = IDLE_SECONDS if not place[1] else 4 * SECONDS
    deadline, worked = time.monotonic() + 8 * SECONDS, time.monotonic()
    out, spent = b"", -1
    try:
        os.set_blocking(reader, False)
        while True:
            try:
                piece = os.read(reader, 1 << 16)
                if not piece:
                    break
                out += piece
            except BlockingIOError:
                time.sleep(0.01)
            now = time.monotonic()
            if (work := _work_of(child)) > spent:
                worked, spent = now, work
            if now > deadline or now - worked > idle:
                return f"it hangs: {_where(child)}"
    finally:
        os.close(reader)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if not out:
        return f"its process ended: {os.waitstatus_to_exitcode(status)}"
    wrong, counts, grown = json.loads(out)
    told.update(counts)
    if grown > MOST_GROWTH:
        return f"it took {grown // MIB} MiB"
    return str(wrong)


def _stacks(process: int) -> Path:
    return Path(tempfile.gettempdir()) / f"offsetlog-contents-stacks-{process}"


def _where(child: int) -> str:
    """The stacks of a child that hangs."""
    os.kill(child, signal.SIGUSR1)
    time.sleep(1)
    stacks = _stacks(child)
    text = stacks.read_text() if stacks.exists() else "its stacks are not known"
    stacks.unlink(missing_ok=True)
    return text


def _work_of(process: int) -> int:
    """The processor's time that a process had, in ticks."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return -1
    return int(fields[11]) + int(fields[12])


def _answer(place: Place, writer: int) -> None:
    counts = Counter[str]()
    stacks = _stacks(os.getpid())
    try:
        with stacks.open("w") as file:
            faulthandler.register(signal.SIGUSR1, file)
            _tell_answers(place, counts, writer)
    finally:
        stacks.unlink(missing_ok=True)
        os._exit(0)


def _tell_answers(place: Place, counts: Counter[str], writer: int) -> None:
    # What the process has to spare would hide what the answers take.
    pa.default_memory_pool().release_unused()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    before = most_memory()
    addresses = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (addresses + ROOM, addresses + ROOM))
    wrong = ask_all(place, counts)
    text = json.dumps([wrong, counts, most_memory() - before]).encode()
    os.set_blocking(writer, True)
    while text:
        text = text[os.write(writer, text) :]


# --- histories -----------------------------------------------------------------------------


@cache
def sftp_place() -> Place:
    place = _STACK.enter_context(sftp_server.running())
    host, _, path = place.url.removeprefix("sftp://").partition("/")
    return f"sftp://{host}", place.options, Path(f"/{path}")


@cache
def smb_place() -> Place | None:
    if samba.missing() is not None:
        return None
    place, share = _STACK.enter_context(samba.running())
    return place.url, place.options, share


def place_for(seed: int, folder: Path) -> tuple[Place, str]:
    """Where a history plays, and which kind of offsets table is there."""
    name = f"root-{os.getpid()}-{seed}"
    if seed % 8 == 2:
        host, options, disk_folder = sftp_place()
        return (f"{host}{disk_folder}/{name}", options, disk_folder / name), "chain"
    if seed % 8 == 4 and (there := smb_place()) is not None:
        url, options, share = there
        return (f"{url}/{name}", options, share / name), "chain"
    return (str(folder / "root"), {}, folder / "root"), "delta"


def tree(folder: Path) -> dict[str, object]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if not path.is_symlink() and path.stat().st_size < 64 * MIB
        if path.is_file() or path.is_dir()
    }


def history(seed: int, folder: Path) -> Counter[str]:
    if seed % 8 == 1:
        counts = flips.history(seed, folder)
        return counts + Counter({OPERATIONS: counts["flips"] + counts["flipped notes"]})
    chance = random.Random(seed)
    counts = Counter[str]()
    place, kind = place_for(seed, folder)
    root = place[2]
    for case in range(1 if place[1] else CASES):
        outside = folder / f"outside-{case}"
        (outside / "folder").mkdir(parents=True)
        (outside / "file").write_bytes(SECRET)
        (outside / "folder" / SECRET.decode()).write_bytes(SECRET)
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(template(kind), root)
        try:
            change = Change(chance, root, outside)
            made = "; ".join(change.make() for _ in range(chance.choice([1, 1, 1, 2])))
            before = tree(outside)
            told = Counter[str]()
            wrong = in_a_child(place, told)
            counts[OPERATIONS] += len(asks())
            counts["changes"] += 1
            for name, count in told.items():
                counts[name] += count
            assert not wrong, f"{made}: {wrong}"
            assert tree(outside) == before, f"{made}: what lies outside the root was changed"
        finally:
            shutil.rmtree(root, ignore_errors=True)
    return counts


# --- bugs that are planted -----------------------------------------------------------------


class _Blind:
    """``stat`` for which nothing is a link."""

    def __getattr__(self, name: str) -> Any:
        return (lambda mode: False) if name == "S_ISLNK" else getattr(stat, name)


def _skipped(*_: object) -> None:
    return None


def _bug(*patches: Patch) -> Bug:
    return Bug(lambda: patched(patches))


PLANTED = {
    "pages are not looked at": _bug((parquet.ParquetReader, "check", _skipped)),
    "a pipe is waited for": _bug(
        (disk, "READ", files.READ & ~os.O_NONBLOCK),
        (files, "READ", files.READ & ~os.O_NONBLOCK),
    ),
    "a link is followed": _bug(
        (disk, "READ", files.READ & ~os.O_NOFOLLOW),
        (files, "NOFOLLOW", 0),
        (disk, "stat", _Blind()),
    ),
    "a seal is not looked at": _bug((delta_log, "has_seal", lambda data: False)),
    "versions are not compared": _bug(
        (TableCheck, "_check_header", _skipped),
        (TableCheck, "_check_state", _skipped),
        (TableCheck, "_note_said", _skipped),
    ),
    "a note is believed without its sum": _bug((notes, "fits", lambda data, total: True)),
}
