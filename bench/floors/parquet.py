"""Bare encode and decode of Parquet with pyarrow, for the same rows and the same files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def encode(table: pa.Table, path: Path, compression: str = "zstd", level: int | None = 1) -> None:
    """One file as our segments are written: no dictionary, page checksums, few statistics, and
    durable when it returns."""
    import pyarrow.parquet as pq

    with path.open("wb") as file:
        pq.write_table(
            table,
            file,
            compression=compression,
            compression_level=level,
            use_dictionary=False,
            write_statistics=False,
            write_page_checksum=True,
            store_schema=False,
            row_group_size=256 * 1024,
        )
        file.flush()
        os.fdatasync(file.fileno())


def decode(paths: Iterable[Path], columns: list[str] | None = None) -> int:
    """Decode files one after another, batch by batch, keeping nothing; the number of rows."""
    import pyarrow.parquet as pq

    rows = 0
    for path in paths:
        with pq.ParquetFile(path, memory_map=False) as file:
            for batch in file.iter_batches(batch_size=65_536, columns=columns):
                rows += batch.num_rows
    return rows
