"""Which pages run on this machine for a log, so that a notebook can name their addresses.

Invariants:

1. A note is the user's own file, which is there as a whole or not at all, and says an address
   without a token. Whoever can't keep notes, or meets a broken one, goes on without.
2. Notes of processes that are gone are passed over.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

MAX_BYTES = 4096
MAX_NOTES = 100


def _folder() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    base = Path(runtime) if runtime else Path.home() / ".cache"
    return base / "offsetlog" / "pages"


def announce(root_id: str, url: str) -> Path | None:
    """Leave a note; delete it at the end."""
    try:
        folder = _folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        note = folder / f"{root_id}-{os.getpid()}.json"
        unfinished = note.with_suffix(".new")
        with open(unfinished, "w", encoding="utf-8", opener=_private) as file:
            json.dump({"url": url, "pid": os.getpid()}, file)
        return unfinished.replace(note)
    except (OSError, RuntimeError):
        return None


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def withdraw(note: Path | None) -> None:
    if note is not None:
        try:
            note.unlink(missing_ok=True)
        except OSError:
            return


def addresses(root_id: str) -> list[str]:
    """Where pages of this log run now."""
    urls = []
    try:
        notes = sorted(_folder().glob(f"{root_id}-*.json"))[:MAX_NOTES]
    except (OSError, RuntimeError):
        return []
    for note in notes:
        try:
            with note.open("rb") as file:
                if os.fstat(file.fileno()).st_uid != os.getuid():
                    continue
                words = json.loads(file.read(MAX_BYTES))
            url, pid = str(words["url"]), int(words["pid"])
            if pid <= 0:
                continue  # Such a number means many processes.
            os.kill(pid, 0)
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if url.startswith(("http://", "https://")):
            urls.append(url)
    return urls
