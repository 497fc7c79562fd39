"""Delta's log: what a version's file says, what a checkpoint holds, and what they add up to.

Rules of this module:

1. A version is lines of JSON, an action each; a checkpoint is a Parquet file of the actions that
   are in force. The state is the newest checkpoint that reads whole and the versions after it.
2. A protocol is judged before anything is believed or written: a feature that is not known here
   is refused by its name.
3. Nothing here does I/O; time and ids are arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from offsetlog.core import strict_json
from offsetlog.core.decode import (
    Decoder,
    anything,
    field,
    from_json,
    from_value,
    integer,
    list_of,
    nullable,
    plain,
    record,
    string,
)
from offsetlog.errors import CorruptLogError, InvalidRequestError

Action = dict[str, Any]

LOG = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"
MOST_LOG_BYTES = 64 * 1024 * 1024
MOST_CHECKPOINT_BYTES = 512 * 1024 * 1024
_MOST_ROWS = 8_000_000
_MOST_UNFOLDED = 2 * 1024 * 1024 * 1024
_READ = frozenset({"timestampNtz", "vacuumProtocolCheck"})
"""Features that change nothing for who reads a table of facts."""
_WRITTEN = _READ | {
    "appendOnly",
    "invariants",
    "checkConstraints",
    "changeDataFeed",
    "generatedColumns",
    "domainMetadata",
}
"""Those that change nothing for who adds files to one without constraints (looked at apart)."""
_WEEK_MS = 7 * 24 * 3_600_000
_UNITS = {"minute": 60_000, "hour": 3_600_000, "day": 86_400_000, "week": _WEEK_MS}
_FILE = re.compile(r"([0-9]{20})\.(?:(json)|checkpoint(?:\.([0-9]{10})\.([0-9]{10}))?\.parquet)")


PATH = field("path", string(8192))
_ADD: Decoder[tuple[str, object]] = record(
    lambda path, size, deletion_vector: (path, deletion_vector),
    path=string(8192),
    size=integer(),
    deletionVector=anything,
)
_APP_ID = field("appId", string())
_DOMAIN = field("domain", string())
_READER = field("minReaderVersion", integer())
_WRITER = field("minWriterVersion", integer())
_SCHEMA_STRING = field("schemaString", string(1_000_000))
_SCHEMA_FIELDS = field("fields", list_of(plain))


class DataFile(NamedTuple):
    """A file of a version; ``rows`` is None where its writer did not tell."""

    size: int
    rows: int | None


class LogFile(NamedTuple):
    """A name in the log: a version, or a part of its checkpoint."""

    version: int
    part: int
    """0: a version; else the number of the part, from 1."""
    parts: int


def log_file(name: str) -> LogFile | None:
    found = _FILE.fullmatch(name.rpartition("/")[2])
    if found is None:
        return None
    if found[2]:
        return LogFile(int(found[1]), 0, 0)
    return LogFile(int(found[1]), int(found[3] or 1), int(found[4] or 1))


class DeltaState:
    """A table at a version. Only who made it moves it on."""

    def __init__(self, version: int = -1) -> None:
        self.version = version
        self.protocol: Action = {}
        self.metadata: Action = {}
        self.adds: dict[str, Action] = {}
        self._removes: dict[str, Action] = {}
        self._tombstones: pa.Table | None = None
        self._others: dict[tuple[str, str], Action] = {}

    @property
    def configuration(self) -> dict[str, str]:
        found = self.metadata.get("configuration")
        return dict(found) if isinstance(found, dict) else {}

    def files(self) -> dict[str, DataFile]:
        return {path: DataFile(add["size"], _rows(add)) for path, add in self.adds.items()}

    def apply(self, actions: Iterable[Action], where: str) -> None:
        """The next version."""
        for action in actions:
            for kind, said in action.items():
                if said is not None:
                    self._apply(kind, from_value(plain, said, where), where)
        self.version += 1

    def _apply(self, kind: str, said: Action, where: str) -> None:
        if kind == "add":
            path, deletion_vector = from_value(_ADD, said, where)
            if deletion_vector is not None:
                raise InvalidRequestError(
                    f"{where}: {path[:200]!r} has rows taken out by a deletion vector.",
                    "Rows of this table are facts that stay: put it back as it was before, or "
                    "restore it from a backup.",
                )
            self.adds[path] = said
            self._removes.pop(path, None)
        elif kind == "remove":
            path = from_value(PATH, said, where)
            self.adds.pop(path, None)
            self._removes[path] = said
        elif kind == "protocol":
            self.protocol = said
        elif kind == "metaData":
            self.metadata = said
        elif kind == "txn":
            self._others[kind, from_value(_APP_ID, said, where)] = said
        elif kind == "domainMetadata":
            domain = from_value(_DOMAIN, said, where)
            self._others.pop((kind, domain), None)
            if not said.get("removed"):
                self._others[kind, domain] = said

    # --- what it allows --------------------------------------------------------------------

    def check_readable(self, where: str) -> None:
        if not self.protocol or not self.metadata:
            raise CorruptLogError(
                f"{where} holds neither a protocol nor metadata of its table.",
                "Restore it from a backup.",
            )
        reader = from_value(_READER, self.protocol, where)
        features = _features("readerFeatures", self.protocol, where)
        if reader == 2 and self.configuration.get("delta.columnMapping.mode", "none") != "none":
            features.add("columnMapping")
        if reader > 3 or features - _READ:
            raise _feature(where, "read", features - _READ or {f"reader version {reader}"})

    def check_writable(self, where: str, columns: Iterable[str]) -> None:
        """Whether files that hold ``columns`` may be added to it."""
        writer = from_value(_WRITER, self.protocol, where)
        features = _features("writerFeatures", self.protocol, where)
        if writer > 7 or features - _WRITTEN:
            raise _feature(where, "written to", features - _WRITTEN or {f"version {writer}"})
        demands = [key for key in self.configuration if key.startswith("delta.constraints.")]
        ours = frozenset(columns)
        for column in self.fields(where):
            name = str(column.get("name"))
            metadata = from_value(plain, column.get("metadata") or {}, where)
            demands += [f"{key} of {name}" for key in metadata if key.startswith("delta.")]
            if name not in ours and column.get("nullable") is not True:
                demands.append(f"the column {name}, which is never null")
        if demands:
            raise InvalidRequestError(
                f"{where} was changed by somebody: it demands {', '.join(sorted(demands))[:300]}.",
                "Only offsetlog writes to this table: take that back, and commit again.",
            )

    def fields(self, where: str) -> list[Action]:
        text = from_value(_SCHEMA_STRING, self.metadata, where)
        return list(from_json(_SCHEMA_FIELDS, text, where))

    # --- as a checkpoint -------------------------------------------------------------------

    def checkpoint(self, now_ms: int) -> tuple[bytes, int]:
        """The file, and how many rows it has. What was removed is told for as long as the table
        says, for those who clean it."""
        keep = now_ms - _interval(self.configuration.get("delta.deletedFileRetentionDuration"))
        rows: list[Action] = [{"protocol": self.protocol}, {"metaData": self.metadata}]
        rows += [{kind: said} for (kind, _), said in sorted(self._others.items())]
        rows += [{"add": add} for add in self.adds.values()]
        rows += [
            {"remove": {**said, "dataChange": False}}
            for said in self._removes.values()
            if (said.get("deletionTimestamp") or 0) >= keep
        ]
        table = pa.Table.from_pylist([_as_row(row) for row in rows], schema=CHECKPOINT)
        tables = [table]
        if self._tombstones is not None:
            old = self._tombstones
            again = pa.array([*self.adds, *self._removes], pa.string())
            fresh = pc.greater_equal(old.column("deletionTimestamp"), keep)
            old = old.filter(pc.and_(fresh, pc.invert(pc.is_in(old.column("path"), again))))
            tables.append(_tombstone_rows(old))
        whole = pa.concat_tables(tables)
        sink = pa.BufferOutputStream()
        pq.write_table(whole, sink, compression="snappy")
        return sink.getvalue().to_pybytes(), whole.num_rows


def read_checkpoint(parts: Sequence[bytes], version: int, where: str) -> DeltaState:
    """The state that a checkpoint holds; an error when it is not whole."""
    state = DeltaState(version)
    removed: list[pa.Table] = []
    try:
        for data in parts:
            _read_part(data, state, removed, where)
    except (pa.ArrowException, KeyError, OSError, ValueError, TypeError) as error:
        raise CorruptLogError(f"{where} does not read: {str(error)[:200]}.") from None
    if not state.protocol or not state.metadata:
        raise CorruptLogError(f"{where} holds neither a protocol nor metadata of its table.")
    state.version = version
    state._tombstones = pa.concat_tables(removed) if removed else None
    return state


def _read_part(data: bytes, state: DeltaState, removed: list[pa.Table], where: str) -> None:
    file = pq.ParquetFile(pa.BufferReader(data))
    footer = file.metadata
    unfolded = sum(footer.row_group(i).total_byte_size for i in range(footer.num_row_groups))
    if footer.num_rows > _MOST_ROWS or unfolded > _MOST_UNFOLDED:
        raise CorruptLogError(f"{where} would unfold to {footer.num_rows} rows.")
    there = set(file.schema_arrow.names)
    for kind in ("protocol", "metaData", "txn", "domainMetadata", "add"):
        if kind not in there:
            continue
        for said in file.read(columns=[kind]).column(0).drop_null().to_pylist():
            action = _plain(said)
            if kind != "add" or action.get("path") is not None:
                state._apply(kind, action, where)
    if "remove" in there:
        column = file.read(columns=["remove.path", "remove.deletionTimestamp"]).column("remove")
        for struct in column.chunks:
            gone = struct.drop_null()
            times = pc.fill_null(gone.field("deletionTimestamp").cast(pa.int64()), 0)
            paths = gone.field("path").cast(pa.string())
            removed.append(pa.table({"path": paths, "deletionTimestamp": times}))


def _plain(said: Action) -> Action:
    """An action of a checkpoint as a version tells it: maps are objects, and what is null is
    left out."""
    out: Action = {}
    for key, value in said.items():
        if isinstance(value, dict):
            value = _plain(value)
        elif isinstance(value, list) and value and isinstance(value[0], tuple):
            value = dict(value)
        elif isinstance(value, list) and not value and key in _MAPS:
            value = {}
        if value is not None:
            out[key] = value
    return out


_MAPS = frozenset({"partitionValues", "tags", "options", "configuration"})


def _as_row(action: Action) -> Action:
    """And back; what the columns do not know is left out by them."""
    [(kind, said)] = action.items()
    row = {name: said.get(name) for name in _NAMES[kind]}
    if kind == "metaData":
        told = said.get("format") or {}
        options = list((told.get("options") or {}).items())
        row["format"] = {"provider": told.get("provider", "parquet"), "options": options}
        row["configuration"] = list((said.get("configuration") or {}).items())
        row["partitionColumns"] = said.get("partitionColumns") or []
    if kind == "add":
        row["partitionValues"] = list((said.get("partitionValues") or {}).items())
        row["modificationTime"] = said.get("modificationTime") or 0
        row["dataChange"] = False
        row["tags"] = None if said.get("tags") is None else list(said["tags"].items())
    return {kind: row}


def _tombstone_rows(old: pa.Table) -> pa.Table:
    kind = CHECKPOINT.field("remove").type
    size = old.num_rows
    columns = {
        "path": old.column("path").combine_chunks(),
        "deletionTimestamp": old.column("deletionTimestamp").combine_chunks(),
        "dataChange": pa.array([False] * size, pa.bool_()),
    }
    fields = [kind.field(name) for name in columns]
    gone = pa.StructArray.from_arrays(list(columns.values()), fields=fields)
    arrays = [gone if f.name == "remove" else pa.nulls(size, f.type) for f in CHECKPOINT]
    return pa.Table.from_arrays(arrays, schema=CHECKPOINT)


def _schema() -> pa.Schema:
    text, number, truth = pa.string(), pa.int64(), pa.bool_()
    texts, words = pa.map_(text, text), pa.list_(pa.field("element", text))

    def struct(**fields: pa.DataType) -> pa.DataType:
        return pa.struct(list(fields.items()))

    add = struct(path=text, partitionValues=texts, size=number, modificationTime=number,
                 dataChange=truth, stats=text, tags=texts)  # fmt: skip
    remove = struct(path=text, deletionTimestamp=number, dataChange=truth)
    metadata = struct(id=text, name=text, description=text,
                      format=struct(provider=text, options=texts), schemaString=text,
                      partitionColumns=words, createdTime=number, configuration=texts)  # fmt: skip
    protocol = struct(minReaderVersion=pa.int32(), minWriterVersion=pa.int32(),
                      readerFeatures=words, writerFeatures=words)  # fmt: skip
    txn = struct(appId=text, version=number, lastUpdated=number)
    domain = struct(domain=text, configuration=text, removed=truth)
    kinds = {"txn": txn, "add": add, "remove": remove, "metaData": metadata,
             "protocol": protocol, "domainMetadata": domain}  # fmt: skip
    return pa.schema(list(kinds.items()))


CHECKPOINT = _schema()
_NAMES = {field.name: [part.name for part in field.type] for field in CHECKPOINT}


# --- versions ------------------------------------------------------------------------------


def actions_of(data: bytes, where: str) -> list[Action]:
    if len(data) > MOST_LOG_BYTES:
        raise CorruptLogError(f"{where} holds more than {MOST_LOG_BYTES} bytes.")
    return list(_lines(data, where))


def _lines(data: bytes, where: str) -> Iterator[Action]:
    for line in data.splitlines():
        if line.strip():
            yield from_json(plain, line, where, MOST_LOG_BYTES)


def written(actions: Iterable[Action]) -> bytes:
    return b"".join(strict_json.dumps(action) + b"\n" for action in actions)


def commit_info(operation: str, now_ms: int, **parameters: str) -> Action:
    said = {"timestamp": now_ms, "operation": operation, "operationParameters": parameters}
    return {"commitInfo": {**said, "engineInfo": "offsetlog"}}


def add_file(path: str, size: int, rows: int, now_ms: int, data_change: bool) -> Action:
    about = {"partitionValues": {}, "dataChange": data_change}
    stats = json.dumps({"numRecords": rows})
    return {"add": {"path": path, "size": size, "modificationTime": now_ms, "stats": stats,
                    **about}}  # fmt: skip


def new_table(
    schema: pa.Schema, table_id: str, configuration: Mapping[str, str], now_ms: int
) -> bytes:
    """Version 0."""
    fields = [
        {"name": f.name, "type": _WORDS[str(f.type)], "nullable": True, "metadata": {}}
        for f in schema
    ]
    metadata: Action = {
        "id": table_id,
        "name": None,
        "description": None,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "createdTime": now_ms,
        "configuration": dict(configuration),
    }
    return written(
        [
            commit_info("CREATE TABLE", now_ms),
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {"metaData": metadata},
        ]
    )


_WORDS = {
    "string": "string",
    "int32": "integer",
    "int64": "long",
    "timestamp[us, tz=UTC]": "timestamp",
}


def column_types(schema: pa.Schema) -> dict[str, str]:
    """Columns in Delta's words."""
    return {field.name: _WORDS[str(field.type)] for field in schema}


def _rows(add: Action) -> int | None:
    try:
        told = json.loads(add.get("stats") or "{}")
    except (ValueError, TypeError, RecursionError):
        return None
    rows = told.get("numRecords") if isinstance(told, dict) else None
    return rows if type(rows) is int and rows >= 0 else None


def _features(name: str, protocol: Action, where: str) -> set[str]:
    features = from_value(field(name, nullable(list_of(string()))), protocol, where)
    return set(features or ())


def _feature(where: str, doing: str, what: Iterable[str]) -> InvalidRequestError:
    return InvalidRequestError(
        f"{where} can't be {doing}: its Delta protocol demands "
        f"{', '.join(sorted(what))[:300]}, which offsetlog does not know.",
        "Only offsetlog writes to this table: restore it from a backup, or upgrade offsetlog.",
    )


def _interval(text: str | None) -> int:
    """``interval 1 hours`` in milliseconds; a week where nothing is told, as Delta has it."""
    found = re.fullmatch(r"(?:interval\s+)?(\d{1,6})\s+([a-z]+?)s?", (text or "").strip().lower())
    unit = _UNITS.get(found[2]) if found else None
    return int(found[1]) * unit if found and unit else _WEEK_MS
