"""The topic as a Delta table, and a query over it by a reader of Delta that is not ours."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

QUERY = """\
select partition, count(*) orders, min("offset") first, max("offset") last
from orders group by partition order by partition"""
READER = "deltalake"


def has_reader() -> bool:
    """Whether Python alone can read a Delta table here."""
    return find_spec(READER) is not None


def answer(path: str) -> list[tuple[int, ...]]:
    """The rows of the query, as the reader gives them."""
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    builder: Any = QueryBuilder().register("orders", DeltaTable(path))
    rows = pa.table(builder.execute(QUERY).read_all()).to_pylist()
    return [tuple(row.values()) for row in rows]
