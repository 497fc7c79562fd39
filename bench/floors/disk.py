"""What a durable record costs this disk at the least: an append to an open file, or a file of its
own whose name lasts too.
"""

from __future__ import annotations

import os
from pathlib import Path
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

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        os.close(self._file)


class BareFile:
    """A new file for each: written without a name, synced, linked, and its folder synced. What
    the chain does on a disk, without the chain."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._count = 0

    def put(self, data: bytes) -> None:
        """Durable under a name of its own when it returns."""
        self._count += 1
        file = os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o644, dir_fd=self._folder)
        try:
            os.write(file, data)
            os.fdatasync(file)
            source, name = f"/proc/self/fd/{file}", str(self._count)
            os.link(source, name, dst_dir_fd=self._folder, follow_symlinks=True)
            os.fsync(self._folder)
        finally:
            os.close(file)

    def close(self) -> None:
        """Close the folder."""
        os.close(self._folder)
