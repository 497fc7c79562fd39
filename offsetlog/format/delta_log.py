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
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

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
from offsetlog.format.parquet import (
    UNSEALED,
    ParquetReader,
    check_seal,
    first_line,
    has_seal,
    sealed,
)

Action = dict[str, Any]

LOG = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"
ENGINE = "offsetlog"
"""Who wrote a version, in its own words."""
SUM_KEY = "offsetlog.xxh3"
"""The tag of an added file that holds its checksum."""
MOST_LOG_BYTES = 64 * 1024 * 1024
MOST_CHECKPOINT_BYTES = 512 * 1024 * 1024
_OUR_PARQUET = b"parquet-cpp-arrow"
"""Who writes our files, by Parquet's own words."""
_MOST_ROWS = 8_000_000
MOST_UNFOLDED = 512 * 1024 * 1024
MOST_ACTIONS = 500_000
"""Of a table that are in force: files, and what is known of programs."""
_READ = frozenset(
    {"timestampNtz", "vacuumProtocolCheck", "deletionVectors", "variantType", "variantType-preview"}
)
"""Features that change nothing for who reads a table of facts: columns of others are passed over,
and a deletion vector is refused where it is in force."""
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
    """A file of a version; ``rows`` is None where its writer did not say."""

    size: int
    rows: int | None


class LogFile(NamedTuple):
    """A name in the log: a version, or a part of its checkpoint."""

    version: int
    part: int
    """0: a version; else the number of the part, from 1."""
    parts: int


def log_file(name: str) -> LogFile | None:
    match = _FILE.fullmatch(name.rpartition("/")[2])
    if match is None:
        return None
    if match[2]:
        return LogFile(int(match[1]), 0, 0)
    return LogFile(int(match[1]), int(match[3] or 1), int(match[4] or 1))


class DeltaState:
    """A table at a version. Only who made it moves it on."""

    def __init__(self, version: int = -1) -> None:
        self.version = version
        self.protocol: Action = {}
        self.metadata: Action = {}
        self.adds: dict[str, Action] = {}
        self._vectors: set[tuple[str, str]] = set()
        """Files that have rows taken out by a deletion vector, with the vector."""
        self._removes: dict[str, Action] = {}
        self._tombstones: pa.Table | None = None
        self._others: dict[tuple[str, str], Action] = {}
        self._is_writable = False
        """Whether it was found to be, by the protocol and the metadata that it has."""
        self.is_ours = False
        """Of what a checkpoint says: whether it was written here."""

    @property
    def configuration(self) -> dict[str, str]:
        settings = self.metadata.get("configuration")
        return dict(settings) if isinstance(settings, dict) else {}

    def files(self) -> dict[str, DataFile]:
        return {path: DataFile(add["size"], rows_of(add)) for path, add in self.adds.items()}

    def apply(self, actions: Iterable[Action], where: str) -> None:
        """The next version."""
        for action in actions:
            for kind, body in action.items():
                if body is not None:
                    self._apply(kind, from_value(plain, body, where), where)
        self.check_count(len(self.adds) + len(self._removes) + len(self._others), where)
        self.version += 1

    def check_count(self, actions: int, where: str) -> None:
        if actions > MOST_ACTIONS:
            raise CorruptLogError(
                f"{where} brings the table to more than {MOST_ACTIONS} actions.",
                "Only offsetlog writes to this table; restore it from a backup.",
            )

    def _apply(self, kind: str, body: Action, where: str) -> None:
        if kind == "add":
            path, deletion_vector = from_value(_ADD, body, where)
            if deletion_vector is not None:
                self._vectors.add((path, _vector_id(deletion_vector)))
                return
            self.adds[path] = body
            self._removes.pop(path, None)
        elif kind == "remove":
            path = from_value(PATH, body, where)
            if body.get("deletionVector") is not None:
                # Another file to Delta than the same one without the vector.
                self._vectors.discard((path, _vector_id(body["deletionVector"])))
                return
            self.adds.pop(path, None)
            self._removes[path] = body
        elif kind == "protocol":
            self.protocol, self._is_writable = body, False
        elif kind == "metaData":
            self.metadata, self._is_writable = body, False
        elif kind == "txn":
            self._others[kind, from_value(_APP_ID, body, where)] = body
        elif kind == "domainMetadata":
            domain = from_value(_DOMAIN, body, where)
            self._others.pop((kind, domain), None)
            if not body.get("removed"):
                self._others[kind, domain] = body

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
        if self._vectors:
            path, _ = min(self._vectors)
            raise InvalidRequestError(
                f"{where}: {path[:200]!r} has rows taken out by a deletion vector.",
                "Rows of this table are facts that stay: restore the version before it (RESTORE), "
                "or a backup.",
            )

    def check_writable(self, where: str, columns: Iterable[str]) -> None:
        """Raise unless files that hold ``columns``, the same ones each time, may be added to it.
        Decoded once for each protocol and metadata."""
        if self._is_writable:
            return
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
        self._is_writable = True

    def fields(self, where: str) -> list[Action]:
        text = from_value(_SCHEMA_STRING, self.metadata, where)
        return list(from_json(_SCHEMA_FIELDS, text, where))

    # --- as a checkpoint -------------------------------------------------------------------

    def checkpoint(self, now_ms: int) -> tuple[bytes, int]:
        """The file, and how many rows it has. What was removed stays in it for as long as the
        table says, for those who clean it."""
        keep = now_ms - _interval(self.configuration.get("delta.deletedFileRetentionDuration"))
        rows: list[Action] = [{"protocol": self.protocol}, {"metaData": self.metadata}]
        rows += [{kind: body} for (kind, _), body in sorted(self._others.items())]
        rows += [{"add": add} for add in self.adds.values()]
        rows += [
            {"remove": {**body, "dataChange": False}}
            for body in self._removes.values()
            if (body.get("deletionTimestamp") or 0) >= keep
        ]
        tables = [as_checkpoint(rows)]
        if self._tombstones is not None:
            old = self._tombstones
            again = pa.array([*self.adds, *self._removes], pa.string())
            fresh = pc.greater_equal(old.column("deletionTimestamp"), keep)
            old = old.filter(pc.and_(fresh, pc.invert(pc.is_in(old.column("path"), again))))
            tables.append(_tombstone_rows(old))
        return checkpoint_file(tables)

    def meaning(self, whole: bool) -> tuple[object, ...]:
        """What readers of the table go by, to be compared; ``whole``: as our own checkpoints have
        it, and not as others may word it."""
        told = ["partitionValues", "size"]
        if whole:
            told += ["modificationTime", "stats", "tags"]
        adds = {path: [add.get(name) or None for name in told] for path, add in self.adds.items()}
        protocol = {name: self.protocol.get(name) for name in _NAMES["protocol"]}
        metadata = {name: self.metadata.get(name) for name in _NAMES["metaData"]}
        others = self._others if whole else {}
        if not whole:
            metadata = {name: metadata[name] for name in ("id", "configuration")}
            metadata["columns"] = _loaded(self.metadata.get("schemaString"))
            metadata["partitionColumns"] = self.metadata.get("partitionColumns") or []
        return adds, protocol, metadata, others


def _loaded(text: object) -> object:
    try:
        return json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return text


def checkpoint_file(parts: Iterable[pa.Table]) -> tuple[bytes, int]:
    """A sealed checkpoint with these rows, which come in parts; and how many there are."""
    sink = pa.BufferOutputStream()
    rows = 0
    with pq.ParquetWriter(sink, CHECKPOINT, compression="snappy") as out:
        for part in parts:
            out.write_table(part)
            rows += part.num_rows
        out.add_key_value_metadata(UNSEALED)
    return sealed(sink.getvalue()), rows


def takes_rows_out(actions: Iterable[Action]) -> bool:
    """Whether a version takes rows out of the table, as RESTORE and DELETE do and OPTIMIZE does
    not."""
    return any(_changes_data(action.get("remove")) for action in actions)


def changes_rows(actions: Sequence[Action]) -> bool:
    """Whether a version may do more than add facts of its own: it takes rows out, or it adds rows
    and is somebody else's, who may put back older ones."""
    infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
    is_ours = any(isinstance(info, dict) and info.get("engineInfo") == ENGINE for info in infos)
    adds = any(_changes_data(action.get("add")) for action in actions)
    return takes_rows_out(actions) or (adds and not is_ours)


def _changes_data(body: object) -> bool:
    return isinstance(body, dict) and bool(body.get("dataChange", True))


def _vector_id(vector: object) -> str:
    """What tells one deletion vector from another."""
    names = ("storageType", "pathOrInlineDv", "offset")
    return repr([vector.get(name) for name in names] if isinstance(vector, dict) else vector)[:4096]


def read_checkpoint(parts: Sequence[bytes], version: int, where: str) -> DeltaState:
    """The state that a checkpoint holds; an error when it is not whole."""
    state = DeltaState(version)
    removed: list[pa.Table] = []
    try:
        for data in parts:
            _read_part(_opened(data, where), state, removed)
    except MemoryError:
        raise  # It is an Arrow error too, and says nothing of the file.
    except (pa.ArrowException, KeyError, OSError, ValueError, TypeError) as error:
        raise CorruptLogError(f"{where} does not read: {first_line(error)}.") from None
    if not state.protocol or not state.metadata:
        raise CorruptLogError(f"{where} holds neither a protocol nor metadata of its table.")
    state.version = version
    state.is_ours = all(has_seal(data) or _OUR_PARQUET in data for data in parts)
    state._tombstones = pa.concat_tables(removed) if removed else None
    return state


def _opened(data: bytes, where: str) -> ParquetReader:
    """A part of a checkpoint, ours or another's. Ours are sealed; older ones are not, and every
    text in a footer has to be one, or other readers refuse it."""
    if has_seal(data):
        check_seal(data, where)
    file = ParquetReader(data, where, with_dictionaries=True)
    for texts in file.key_values.items():
        for text in texts:
            text.decode()
    return file


def _read_part(file: ParquetReader, state: DeltaState, removed: list[pa.Table]) -> None:
    where, there = file.name, set(file.schema.names)
    if file.num_rows > _MOST_ROWS:
        raise CorruptLogError(f"{where} would unfold to {file.num_rows} rows.")
    for kind in ("protocol", "metaData", "txn", "domainMetadata", "add"):
        if kind not in there:
            continue
        actions = file.read([kind], MOST_UNFOLDED).column(0).drop_null()
        state.check_count(len(state.adds) + len(actions), where)
        for row in actions.to_pylist():
            action = _plain(row)
            if kind != "add" or action.get("path") is not None:
                state._apply(kind, action, where)
    removed += _removed_in(file)


def _removed_in(file: ParquetReader) -> list[pa.Table]:
    """What a checkpoint says of removed files: paths and times."""
    if "remove" not in file.schema.names:
        return []
    out = []
    table = file.read(["remove.path", "remove.deletionTimestamp"], MOST_UNFOLDED)
    for struct in table.column("remove").chunks:
        gone = struct.drop_null()
        times = pc.fill_null(gone.field("deletionTimestamp").cast(pa.int64()), 0)
        paths = gone.field("path").cast(pa.string())
        out.append(pa.table({"path": paths, "deletionTimestamp": times}))
    return out


def row_count(data: bytes, where: str) -> int:
    """Of a checkpoint that was read."""
    return _opened(data, where).num_rows


def removed_files(data: bytes, where: str) -> dict[str, int]:
    """When files were removed, by path, as a checkpoint says. Its other rows are not read."""
    try:
        tables = _removed_in(_opened(data, where))
    except MemoryError:
        raise  # It is an Arrow error too, and says nothing of the file.
    except (pa.ArrowException, KeyError, OSError, ValueError, TypeError) as error:
        raise CorruptLogError(f"{where} does not read: {first_line(error)}.") from None
    return {
        path: time
        for table in tables
        for path, time in zip(*(column.to_pylist() for column in table.columns), strict=True)
    }


def _plain(row: Action) -> Action:
    """An action of a checkpoint as a version has it: maps are objects, and what is null is left
    out."""
    out: Action = {}
    for key, value in row.items():
        if isinstance(value, dict):
            value = _plain(value)
        elif isinstance(value, list) and value and isinstance(value[0], tuple):
            value = dict(value)
        elif isinstance(value, list) and not value and key in _MAPS:
            value = {}
        if value is not None:
            out[key] = value
    return out


def as_checkpoint(actions: Sequence[Action]) -> pa.Table:
    """Actions as the rows of a checkpoint."""
    return pa.Table.from_pylist([_as_row(action) for action in actions], schema=CHECKPOINT)


_MAPS = frozenset({"partitionValues", "tags", "options", "configuration"})


def _as_row(action: Action) -> Action:
    """And back; what the columns do not know is left out by them."""
    [(kind, body)] = action.items()
    row = {name: body.get(name) for name in _NAMES[kind]}
    if kind == "metaData":
        form = body.get("format") or {}
        options = list((form.get("options") or {}).items())
        row["format"] = {"provider": form.get("provider", "parquet"), "options": options}
        row["configuration"] = list((body.get("configuration") or {}).items())
        row["partitionColumns"] = body.get("partitionColumns") or []
    if kind == "add":
        row["partitionValues"] = list((body.get("partitionValues") or {}).items())
        row["modificationTime"] = body.get("modificationTime") or 0
        row["dataChange"] = False
        row["tags"] = None if body.get("tags") is None else list(body["tags"].items())
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
    """What a version says, a line each."""
    if len(data) > MOST_LOG_BYTES:
        raise CorruptLogError(f"{where} holds more than {MOST_LOG_BYTES} bytes.")
    strict_json.check_values(data, where)
    if data.count(b"\n") > strict_json.MAX_VALUES:
        raise CorruptLogError(f"{where} holds more than {strict_json.MAX_VALUES} lines.")
    lines = (line for line in data.split(b"\n") if line.strip())
    return [from_json(plain, line, where, MOST_LOG_BYTES) for line in lines]


def is_understood(actions: Sequence[Action]) -> bool:
    """Whether each action of a version has what Delta demands of its kind; and of one that was
    written here, nothing but what is written here."""
    known = all(len(action) == 1 and _is_whole(*next(iter(action.items()))) for action in actions)
    info = actions[0].get("commitInfo") if known and actions else None
    if not isinstance(info, dict) or info.get("engineInfo") != ENGINE:
        return known
    return all(_is_our_own(*next(iter(action.items()))) for action in actions)


def _is_whole(kind: str, body: object) -> bool:
    if kind not in _DEMANDED or not isinstance(body, dict):
        return kind in _DEMANDED and body is None
    return all(isinstance(body.get(name), of) for name, of in _DEMANDED[kind].items())


_DEMANDED: dict[str, dict[str, type]] = {
    "commitInfo": {},
    "protocol": {"minReaderVersion": int, "minWriterVersion": int},
    "metaData": {"id": str, "format": dict, "schemaString": str, "partitionColumns": list,
                 "configuration": dict},
    "add": {"path": str, "partitionValues": dict, "size": int, "modificationTime": int,
            "dataChange": bool},
    "remove": {"path": str, "dataChange": bool},
    "txn": {"appId": str, "version": int},
    "domainMetadata": {"domain": str},
    "cdc": {"path": str},
}  # fmt: skip


def _is_our_own(kind: str, body: Action) -> bool:
    if kind == "add":
        rows = rows_of(body)
        told = {**body, "stats": json.dumps({"numRecords": rows}), "partitionValues": {}}
        return body == told and body.keys() <= set(_NAMES["add"])
    if kind == "remove":
        return body.keys() == {"path", "deletionTimestamp", "dataChange"}
    return True


def is_first(actions: Sequence[Action], settings: Mapping[str, str]) -> bool:
    """Whether a version that makes a table, if it was written here, makes it as it is made."""
    info = actions[0].get("commitInfo") if actions else None
    if not isinstance(info, dict) or info.get("engineInfo") != ENGINE:
        return True
    if info.get("operation") not in ("CREATE TABLE", "CLONE"):
        return True
    bodies = {kind: body for action in actions for kind, body in action.items()}
    metadata, protocol = bodies.get("metaData"), bodies.get("protocol")
    if not isinstance(metadata, dict) or protocol != FIRST_PROTOCOL:
        return False
    configuration = metadata.get("configuration")
    fields = _loaded(metadata.get("schemaString"))
    if not isinstance(configuration, dict) or not isinstance(fields, dict):
        return False
    if any(configuration.get(key) != value for key, value in settings.items()):
        return False
    try:
        columns = [column(field["name"], field["type"]) for field in fields["fields"]]
    except (KeyError, TypeError):
        return False
    table_id, created = str(metadata.get("id")), metadata.get("createdTime")
    return bool(metadata == metadata_of(columns, table_id, configuration, created))


def encode_version(
    operation: str,
    now_ms: int,
    actions: Sequence[Action],
    own: Mapping[str, object] | None = None,
    **parameters: str,
) -> bytes:
    """A version's file: what was done, and the actions that make it up. ``own`` is what only
    offsetlog reads."""
    info: Action = {"timestamp": now_ms, "operation": operation,
                    "operationParameters": parameters, "engineInfo": ENGINE}  # fmt: skip
    if own is not None:
        info[ENGINE] = own
    lines = [strict_json.encode(action) for action in ({"commitInfo": info}, *actions)]
    return ("\n".join(lines) + "\n").encode()


def add_file(path: str, data: bytes, rows: int, now_ms: int, data_change: bool) -> Action:
    return {"add": {"path": path, "size": len(data), "modificationTime": now_ms,
                    "stats": json.dumps({"numRecords": rows}), "partitionValues": {},
                    "dataChange": data_change,
                    "tags": {SUM_KEY: xxhash.xxh3_64_hexdigest(data)}}}  # fmt: skip


def check_file(add: Action, data: bytes, where: str) -> None:
    """Refuse a data file that is not the one that was added. Those of others have no sum."""
    tags = add.get("tags")
    total = tags.get(SUM_KEY) if isinstance(tags, dict) else None
    if len(data) != add.get("size") or total not in (None, xxhash.xxh3_64_hexdigest(data)):
        raise CorruptLogError(
            f"{where} was changed after it was written: its size or checksum differs.",
            "Restore the table from a backup.",
        )


FIRST_PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}


def new_table(
    schema: pa.Schema, table_id: str, configuration: Mapping[str, str], now_ms: int
) -> bytes:
    """Version 0."""
    fields = [column(f.name, _WORDS[str(f.type)]) for f in schema]
    metadata = metadata_of(fields, table_id, configuration, now_ms)
    return encode_version(
        "CREATE TABLE", now_ms, [{"protocol": FIRST_PROTOCOL}, {"metaData": metadata}]
    )


def column(name: str, kind: object) -> Action:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def metadata_of(
    fields: Sequence[Action],
    table_id: str,
    configuration: Mapping[str, str],
    now_ms: int | None,
    name: str | None = None,
    partitioned_by: Sequence[str] = (),
) -> Action:
    """The body of a ``metaData`` action."""
    return {
        "id": table_id,
        "name": name,
        "description": None,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": list(fields)}),
        "partitionColumns": list(partitioned_by),
        "createdTime": now_ms,
        "configuration": dict(configuration),
    }


_WORDS = {
    "string": "string",
    "int32": "integer",
    "int64": "long",
    "timestamp[us, tz=UTC]": "timestamp",
}


def column_types(schema: pa.Schema) -> dict[str, str]:
    """Columns in Delta's words."""
    return {field.name: _WORDS[str(field.type)] for field in schema}


def rows_of(add: Action) -> int | None:
    """How many rows a file has, as its version says; None where its writer did not tell."""
    try:
        stats = json.loads(add.get("stats") or "{}")
    except (ValueError, TypeError, RecursionError):
        return None
    rows = stats.get("numRecords") if isinstance(stats, dict) else None
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
    """``interval 1 hours`` in milliseconds; a week where there is none, as Delta has it."""
    match = re.fullmatch(r"(?:interval\s+)?(\d{1,6})\s+([a-z]+?)s?", (text or "").strip().lower())
    unit = _UNITS.get(match[2]) if match else None
    return int(match[1]) * unit if match and unit else _WEEK_MS
