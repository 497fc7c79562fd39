"""Every failure that a user of offsetlog can meet, and the class of its warnings.

Rules of this module:

1. A class says what the caller can do about it, not where it happened.
2. The message says what happened and to what; ``hint`` says what to do about it.
3. ``retryable`` means that the same call may succeed later as it is;
   ``may_have_landed`` means that the write was sent and its fate is not known.
4. All of them survive pickling, since Spark carries them between processes.
5. Whatever a message or a warning repeats, it shows no secret, is of one line and bounded.
"""

from __future__ import annotations

from typing import Any

from offsetlog.redact import hide
from offsetlog.text import printable, shortened


class OffsetLogError(Exception):
    """The base of all errors of this package."""

    retryable: bool = False
    may_have_landed: bool = False

    def __init__(
        self,
        message: str,
        hint: str = "",
        *,
        retryable: bool | None = None,
        may_have_landed: bool | None = None,
    ) -> None:
        self.message, self.hint = _shown(message), _shown(hint)
        super().__init__(self.message)
        if retryable is not None:
            self.retryable = retryable
        if may_have_landed is not None:
            self.may_have_landed = may_have_landed

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            _rebuild,
            (type(self), self.message, self.hint, self.retryable, self.may_have_landed),
        )


def _shown(text: str) -> str:
    return shortened(printable(hide(text)))


def _rebuild(
    cls: type[OffsetLogError], message: str, hint: str, retryable: bool, landed: bool
) -> OffsetLogError:
    return cls(message, hint, retryable=retryable, may_have_landed=landed)


class InvalidRequestError(OffsetLogError):
    """The request itself is wrong: an option, a name, an argument."""


class UnknownTopicError(InvalidRequestError):
    """The topic, or the partition of it, does not exist."""


class TopicExistsError(InvalidRequestError):
    """A topic of this name, or of one that differs only by case or by '.' and '_', exists."""


class OffsetOutOfRangeError(InvalidRequestError):
    """The offset lies outside what the partition holds."""


class NoOffsetForGroupError(InvalidRequestError):
    """The group has no committed offset, and its reset policy is ``none``."""


class FencedError(OffsetLogError):
    """Another program owns this now; the call had no effect."""


class UnsafeFilesystemError(OffsetLogError):
    """The filesystem cannot decide a race, so nothing may be written to it."""


class CorruptLogError(OffsetLogError):
    """What is stored is not what was written."""


class StorageError(OffsetLogError):
    """The filesystem failed or did not answer."""

    retryable = True


class OffsetLogWarning(UserWarning):
    """Every warning of this package: the call goes on, but you should know."""

    def __init__(self, message: str) -> None:
        super().__init__(_shown(message))
