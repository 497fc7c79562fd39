"""Upkeep beside a stream: now and then a process of its own that does one round, and ends.

Invariants:

1. No batch waits for it, and none fails for it: what goes wrong is a warning.
2. One at a time, and one an interval, for a log and the topics of a query on this machine: a file
   of the user's own, which is locked while a round runs, says when the last one began. So it does
   not matter that Spark replaces the worker in which a batch is committed.
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
    folder = Path(tempfile.gettempdir()) / f"offsetlog-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o022:
        raise OSError(f"{folder} is not a folder that this user alone may write to.")
    return folder


def _start(work: Round, lock: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=(lock,),
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdin is not None
    with process.stdin as pipe:
        pipe.write(pickle.dumps(work))
    return process


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
