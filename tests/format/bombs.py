"""Small files that would take gigabytes, and what is asked of each.

``python -m tests.format.bombs`` opens all of them, and prints for each what it answered and by how
many bytes the process had grown by then. It runs under a limit of address space, so that a reader
without a budget fails here and takes nobody else's memory.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from offsetlog.core import strict_json
from offsetlog.core.topic.entry import SegmentRef
from offsetlog.core.topic.state import EMPTY_STATE
from offsetlog.errors import OffsetLogError
from offsetlog.format import decisions, delta_log, entries, segments, snapshots
from offsetlog.format import facts_arrow as fact_rows
from tests.format import forge
from tests.format.samples import chain, files

MIB = 1 << 20
LIMIT = 3 << 30
BIG = 1500 * MIB
ROWS = 3000
APPEND = json.loads(decisions.encode(chain()[1][1]))


def told(rows: int) -> dict[str, str]:
    decision = {**APPEND, "parts": [[0, rows, 0, 0, 0]]}
    return {"offsetlog.decision": json.dumps(decision)}


def dictionary_pages() -> tuple[bytes, bytes]:
    """One value of a megabyte, and rows that all are it."""
    value = MIB.to_bytes(4, "little") + bytes(MIB)
    words = forge.page(value, len(value), 1, kind=2)
    indices = b"\x01" + forge.run(ROWS, 0)
    return words, forge.page(indices, len(indices), ROWS, forge.RLE_DICTIONARY)


def repeated_pages() -> bytes:
    """The same by DELTA_BYTE_ARRAY: each value begins with all of the one before."""
    prefixes = forge.delta_packed([0] + [MIB] * (ROWS - 1))
    suffixes = forge.delta_packed([MIB] + [0] * (ROWS - 1)) + bytes(MIB)
    return forge.page(prefixes + suffixes, len(prefixes + suffixes), ROWS, forge.DELTA_BYTES)


def zeros(size: int, values: int, first: bytes = b"") -> bytes:
    frame = forge.zstd_frame(first, size - len(first))
    return forge.page(frame, size, values)


def entry(pages: bytes, rows: int, **more: object) -> Callable[[], object]:
    data = forge.column_file("value", pages, rows, metadata=told(rows), **more)  # type: ignore[arg-type]
    assert len(data) < 2 * MIB
    return lambda: entries.decode(data, "entry").rows(0, rows, ("value",))


def segment(pages: bytes, rows: int, **more: object) -> Callable[[], object]:
    groups = [[4, 4 + len(pages), xxhash.xxh3_64_hexdigest(pages), rows]]
    about = {"offsetlog.version": "1", "offsetlog.groups": json.dumps(groups)}
    data = forge.column_file("value", pages, rows, metadata=about, is_sealed=False, **more)  # type: ignore[arg-type]
    foot = len(data) - 4 - len(pages)
    ref = SegmentRef(0, "a" * 32, len(data), foot, xxhash.xxh3_64_hexdigest(data[-foot:]))

    def read() -> object:
        return segments.OpenSegment.whole(ref, rows, "segment", data).read(0, rows, ("value",))

    return read


def footers() -> bytes:
    """A footer of empty columns: three bytes each, and a kilobyte of memory."""
    columns = [[[2, forge.I64, 0]] for _ in range(120_000)]
    group = [[1, forge.LIST, (forge.STRUCT, columns)], [2, forge.I64, 0], [3, forge.I64, 0]]
    whole = forge.column_file("value", b"", 0, metadata=told(0))
    footer, start = forge.footer_of(whole)
    for field in footer:
        if field[0] == 4:
            field[2] = (forge.STRUCT, [group] * 8)
    return forge.with_footer(whole[:start], footer)


def table_file() -> bytes:
    """A data file of the offsets table, as others write them, with one long text in it."""
    rows = fact_rows.to_arrow([])
    columns = []
    for field in rows.schema:
        if field.name == "metadata":
            words = pa.array(["x" * MIB])
            indices = pa.array([0] * ROWS, pa.int32())
            columns.append(pa.DictionaryArray.from_arrays(indices, words))
        elif field.name == "place":
            columns.append(pa.array(range(ROWS), pa.int32()))
        elif field.type == pa.string():
            columns.append(pa.array(["commit"] * ROWS))
        else:
            columns.append(pa.array([1] * ROWS, pa.int64()).cast(field.type))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns, names=rows.schema.names), sink, compression="zstd")
    return bytes(sink.getvalue().to_pybytes())


def checkpoint_file() -> bytes:
    """A checkpoint of Delta's log: one path of a megabyte, many times."""
    words = pa.DictionaryArray.from_arrays(pa.array([0] * ROWS, pa.int32()), pa.array(["x" * MIB]))
    add = pa.StructArray.from_arrays([words], names=["path"])
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"add": add}), sink, compression="zstd")
    return bytes(sink.getvalue().to_pybytes())


def nested() -> Callable[[], object]:
    """Three records with eighty million headers, all null: their levels are runs."""
    many = 80_000_000
    repeated = forge.levels(forge.run(3, 0), forge.run(many - 3, 1))
    stored = repeated + forge.levels(forge.run(many, 3))
    raw = forge.page(stored, len(stored), many)
    data = files()["entry-append-inline.parquet"]
    for leaf in ("key", "value"):
        data = forge.with_column(data, f"headers.list.element.{leaf}", raw, many)
    return lambda: entries.decode(data, "entry").rows(0, 3, ("headers",))


def long_page(kind: str, path: str) -> bytes:
    """A stored state with a page of zeros, far longer than its rows."""
    rows = int(pq.read_metadata(pa.BufferReader(files()[kind])).num_rows)
    there = forge.levels(forge.run(rows, 1))
    return forge.with_column(files()[kind], path, zeros(BIG, rows, there), rows, forge.ZSTD)


def one_word(kind: str, path: str) -> bytes:
    """A column whose rows all are one value of sixty megabytes."""
    rows, size = int(pq.read_metadata(pa.BufferReader(files()[kind])).num_rows), 60 * MIB
    words = forge.page(forge.zstd_frame(size.to_bytes(4, "little"), size), size + 4, 1, kind=2)
    indices = forge.levels(forge.run(rows, 1)) + b"\x01" + forge.run(rows, 0)
    page = forge.page(forge.zstd_frame(indices), len(indices), rows, forge.RLE_DICTIONARY)
    return forge.with_column(files()[kind], path, words + page, rows, forge.ZSTD, len(words))


def bombs() -> Iterator[tuple[str, Callable[[], object]]]:
    """Each made when it is its turn."""
    wide = {"codec": forge.ZSTD}
    words, indices = dictionary_pages()
    apart = {"dictionary_at": 4, "data_at": 4 + len(words)}
    yield "an entry with a dictionary", entry(words + indices, ROWS, **apart)
    yield "an entry whose values repeat each other", entry(repeated_pages(), ROWS)
    yield "an entry with a page of 1.5 GB", entry(zeros(BIG, 1), 1, **wide)
    yield "an entry whose page says 2 GB", entry(forge.page(b"x", 2**31 - 1, 1), 1, **wide)
    yield "an entry of two billion values", entry(forge.page(b"", 0, 2**31 - 1), 2)
    yield "headers without an end", nested()
    yield "a segment with a dictionary", segment(words + indices, ROWS, **apart)
    yield "a segment with a page of 1.5 GB", segment(zeros(BIG, 1), 1, **wide)
    leaf = long_page("leaf-0.parquet", "ids")
    yield "a leaf with a page of 1.5 GB", partial(snapshots.decode_leaf, leaf, "leaf")
    state = long_page("snapshot.parquet", "base")
    yield "a snapshot with a page of 1.5 GB", partial(snapshots.decode_snapshot, state, "state")
    words = one_word("senders.parquet", "app")
    yield "senders with a dictionary", partial(snapshots.decode_senders, EMPTY_STATE, words, "s")
    yield "a footer of millions of columns", partial(entries.decode, footers(), "entry")
    facts = table_file()

    def read_facts() -> object:
        return len(fact_rows.facts_of(fact_rows.open_file(facts, "table"), -1))

    yield "facts with a dictionary", read_facts
    yield "a Delta checkpoint", partial(delta_log.read_checkpoint, [checkpoint_file()], 1, "c")
    for name, line in (("lines", b"\n"), ("actions", b"{}\n")):
        version = line * (20 * MIB // len(line))
        yield f"a version of empty {name}", partial(delta_log.actions_of, version, "version")
    state = b"[" + b"[]," * (17 * MIB) + b"[]]"
    digest = xxhash.xxh3_64_hexdigest(state).encode()
    stored = digest + b"\n" + state
    del state
    yield "a checkpoint of groups", partial(fact_rows.decode_checkpoint, stored, "groups")
    del stored
    for name, text in (
        ("lists", b"[" + b"[]," * (3 * MIB) + b"[]]"),
        ("objects", b"[" + b"{}," * (3 * MIB) + b"{}]"),
        ("depth", b"[" * (20 * MIB)),
        ("digits", b"[" + b"9" * (20 * MIB) + b"]"),
    ):
        yield f"JSON of many {name}", partial(strict_json.loads, text, "json")


def most_memory() -> int:
    """The most that this process had since ``forget_most``."""
    status = Path("/proc/self/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def forget_most() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    for name, open_it in bombs():
        forget_most()
        before = most_memory()
        try:
            answer = f"read: {open_it()}"[:60]
        except OffsetLogError as error:
            answer = f"{type(error).__name__}: {error.message}"
        except BaseException as error:  # noqa: BLE001 - told to the test
            answer = f"raw {type(error).__name__}: {error}"
        print(json.dumps([name, answer[:300], most_memory() - before]), flush=True)


if __name__ == "__main__":
    sys.exit(main())
