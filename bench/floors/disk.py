"""A bare append to one file, made durable: the least that a fsynced record can cost here."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self


class BareAppend:
    """``write`` and ``fdatasync`` on one open file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def append(self, data: bytes) -> None:
        """Durable when it returns."""
        os.write(self._file, data)
        os.fdatasync(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._file)
