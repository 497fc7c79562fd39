"""What a foreign exception says about the file that was asked for.

1. Three things matter: is the file there, is it surely not changed, or is nothing known.
2. A refusal (``REFUSED``) left nothing behind. Where that is not certain it is ``OPEN``.
3. The words are fit for a user: they are redacted where they are made into an error.
4. A server that was silent for all of a call's time is told from one that answered wrongly: who
   asks it again at once waits as long again.
"""

from __future__ import annotations

import enum
import errno
import os
from typing import NamedTuple

from offsetlog.errors import OffsetLogError, StorageError
from offsetlog.redact import Redactor


class FaultKind(enum.Enum):
    MISSING = "there is no such file"
    EXISTS = "a file is there"
    REFUSED = "it was refused, nothing changed"
    OPEN = "no answer"


class Fault(NamedTuple):
    kind: FaultKind
    text: str
    hint: str = ""
    retryable: bool = True
    is_silence: bool = False


class NoSpaceError(StorageError):
    """Nothing was written, since the disk is full or a quota is used up."""


class NoAnswer(Exception):
    """A refusal that says nothing: an earlier try of the same request may have landed."""


class Silence(NoAnswer):
    """Nothing came for as long as a call is given."""


class SilenceError(StorageError):
    """A server did not answer for as long as a call is given."""


_NO_SPACE = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the disk quota is used up"}
_OF_ERRNO = {
    **{
        number: (text, "Free some space, then try again.", True)
        for number, text in _NO_SPACE.items()
    },
    errno.EROFS: ("it is a read-only filesystem", "Mount it for writing.", False),
    errno.EACCES: ("permission denied", "Check who owns the folder and its mode.", False),
    errno.EPERM: ("the operation is not permitted", "Check the rights on the folder.", False),
    errno.ENAMETOOLONG: ("the name is too long for this filesystem", "", False),
    errno.EMFILE: ("this process has too many open files", "Raise its limit (ulimit -n).", True),
    errno.ENFILE: ("this machine has too many open files", "", True),
    errno.EFBIG: ("the file is larger than is allowed (ulimit -f)", "Raise the limit.", False),
    errno.ENOTDIR: ("a file is in the place of a folder", "Move it out of the way.", False),
    errno.EISDIR: ("a folder is in the place of the file", "Move it out of the way.", False),
}


def disk_failures() -> dict[str, str]:
    """What is said of a disk's failures, by the system's own words for them."""
    return {os.strerror(n): f"{text}. {hint}".strip() for n, (text, hint, _) in _OF_ERRNO.items()}


def of_exception(error: BaseException) -> Fault:
    """What a plain Python exception says; clients with words of their own are asked first."""
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, Silence):
        hint = "Check the server and the way to it, and try again."
        return Fault(FaultKind.OPEN, str(error), hint, is_silence=True)
    if isinstance(error, FileExistsError) or number == errno.EEXIST:
        return Fault(FaultKind.EXISTS, "a file is there")
    if isinstance(error, FileNotFoundError) or number == errno.ENOENT:
        return Fault(FaultKind.MISSING, "there is no such file or folder")
    if number in _OF_ERRNO:
        return Fault(FaultKind.REFUSED, *_OF_ERRNO[number])
    if isinstance(error, PermissionError):
        hint = "Check the credentials and what they allow."
        return Fault(FaultKind.REFUSED, f"permission denied ({words(error)})", hint, False)
    if isinstance(error, (ImportError, NotImplementedError, TypeError)):
        return Fault(FaultKind.REFUSED, words(error), "", False)
    return Fault(FaultKind.OPEN, words(error))


def words(error: BaseException) -> str:
    """The class of an exception and what it says, with the one that caused it if it says more."""
    text = str(error).strip().rstrip(".")
    cause = error.__cause__
    if not text and cause is not None:
        return words(cause)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def storage_error(
    fault: Fault, doing: str, name: str, url: str, redact: Redactor
) -> OffsetLogError:
    """The error of ours for a fault: what could not be done to what, and why."""
    what = f"{name!r} under {url}" if name else url
    kind = NoSpaceError if fault.text in _NO_SPACE.values() else StorageError
    return (SilenceError if fault.is_silence else kind)(
        f"Could not {doing} {what}: {redact(fault.text)}.",
        fault.hint,
        retryable=fault.retryable,
        may_have_landed=fault.kind is FaultKind.OPEN and doing in ("create", "write"),
    )
