"""Upkeep beside a stream: now and then a process of its own that does one round, and ends.

Invariants:

1. No batch waits for it, and none fails for it: what goes wrong is a warning.
2. One at a time, and one an interval, for a log and the topics of a query on this machine: a file
   of the user's own, which is locked while a round runs, says when the last one began. So it does
   not matter that Spark replaces the worker in which a batch is committed. It lies where no other
   user of the machine can be first.
3. It ends with the Spark application: when the process that started its starter is gone, it goes
   too, at any point of its round. Upkeep may be killed at any time.
4. Where the log is, and what its filesystem must be told, goes through a pipe: others can read
   a process's arguments.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pickle
import stat
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import NamedTuple

import offsetlog
from offsetlog.engine.env import REAL
from offsetlog.errors import OffsetLogError
from pyspark_offsetlog.options.spec import LogAddress
from pyspark_offsetlog.runtime.user_errors import warn, warn_once

_started: list[subprocess.Popen[bytes]] = []
"""Those whose end this process has not seen yet."""


class Round(NamedTuple):
    """What the process is to do."""

    place: LogAddress
    topics: tuple[str, ...]
    lives_with: int
    """It ends when this process is gone."""


def start_if_due(place: LogAddress, topics: tuple[str, ...], interval_ms: int) -> None:
    """Start a round for these topics, unless one is under way or began within the interval."""
    _started[:] = [process for process in _started if process.poll() is None]
    try:
        lock = _due(place, topics, interval_ms)
        if lock is None:
            return
        try:
            _started.append(_start(Round(place, topics, os.getppid()), lock))
        finally:
            os.close(lock)  # The process has it.
    except Exception as error:  # noqa: BLE001 - the batch is written, and must not fail for this
        warn_once(f"No upkeep was started for {', '.join(topics)}: {error}")


def _due(place: LogAddress, topics: tuple[str, ...], interval_ms: int) -> int | None:
    """The locked file of the round that may begin now, which is noted as begun; else None."""
    about = "\0".join([place.root, place.root_id or "", *topics])
    name = hashlib.sha256(about.encode()).hexdigest()[:32]
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    lock = os.open(_own_folder() / f"{name}.upkeep", flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        now = REAL.now_ms()
        began = int(os.pread(lock, 20, 0) or b"0")
        # A clock that was set back must not put upkeep off.
        if began <= now < began + interval_ms:
            os.close(lock)
            return None
        os.pwrite(lock, b"%020d" % now, 0)
        return lock
    except BlockingIOError:
        os.close(lock)
        return None
    except BaseException:
        os.close(lock)
        raise


def _own_folder() -> Path:
    """Where the notes lie, in the first place that is this user's alone."""
    places = []
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        places.append(Path(runtime) / "offsetlog" / "upkeep")
    with suppress(RuntimeError):
        places.append(Path.home() / ".cache" / "offsetlog" / "upkeep")
    for folder in places:
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_own(folder):
                return folder
    # Anybody may make names there first, so ours is one that nobody knows; all processes of a user
    # take the same of those that are there.
    prefix = f"offsetlog-{os.getuid()}-"
    if not (there := _own_in_temp(prefix)):
        tempfile.mkdtemp(prefix=prefix)
        there = _own_in_temp(prefix)
    return there[0]


def _own_in_temp(prefix: str) -> list[Path]:
    found = Path(tempfile.gettempdir()).glob(f"{prefix}*")
    return sorted(path for path in found if _is_own(path))


def _is_own(folder: Path) -> bool:
    """Whether it is a folder that this user alone may write to."""
    try:
        about = folder.lstat()
    except OSError:
        return False
    is_owner = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid()
    return is_owner and not about.st_mode & 0o022 and os.access(folder, os.W_OK)


def _start(work: Round, lock: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        # The current folder, which may be anybody's, is not where modules come from.
        [sys.executable, "-P", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=(lock,),
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(_search_path())},
    )
    assert process.stdin is not None
    with process.stdin as pipe:
        pipe.write(pickle.dumps(work))
    return process


def _search_path() -> list[str]:
    """Where modules come from here, without the current folder that ``-m`` put first, unless it is
    named on purpose or has offsetlog."""
    here = os.getcwd()
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    is_needed = here in named or Path(offsetlog.__file__).parents[1] == Path(here)
    return [path for path in sys.path if path and (path != here or is_needed)]


# --- the process -------------------------------------------------------------------------------


def main() -> None:
    """One round, as the pipe says."""
    work: Round = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with, args=(work.lives_with,), daemon=True).start()
    place = work.place
    with offsetlog.open(
        place.root,
        single_writer=place.single_writer,
        offsets_table=place.offsets_table,
        **dict(place.storage),
    ) as log:
        if place.root_id is not None:
            log.root.keep_to(place.root_id)
        for topic in work.topics:
            try:
                log.maintain(topic)
            except OffsetLogError as error:
                warn(f"The upkeep of topic {topic!r} failed: {error}")


def _end_with(process: int) -> None:
    while True:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            os._exit(0)
        except PermissionError:
            return  # It is another user's now: ours is gone, or was never to be seen.
        sleep(0.5)


if __name__ == "__main__":
    main()
