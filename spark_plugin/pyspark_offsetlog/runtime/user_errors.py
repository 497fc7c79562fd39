"""Errors as a user should see them: one line, without the trace of the worker that raised it.

Invariants:

1. Every door that Spark knocks at is ``one_line_errors``: what of ours passes it is shown as its
   message alone. Other exceptions keep their traces, since they are our faults.
2. Spark ends a worker process that raised, so what is set here outlives no other work.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from offsetlog.errors import OffsetLogError
from offsetlog.redact import hide
from offsetlog.text import printable, shortened

HIDE = "SPARK_HIDE_TRACEBACK"
"""PySpark's own switch: with it a worker sends the exception's last line only."""
DEBUG = "OFFSETLOG_DEBUG"
F = TypeVar("F", bound=Callable[..., Any])


def one_line_errors(door: F) -> F:
    """Let errors of ours pass as one line."""

    @functools.wraps(door)
    def through(*args: Any, **kwargs: Any) -> Any:
        try:
            return door(*args, **kwargs)
        except OffsetLogError as error:
            _hide()
            raise error from None

    return through  # type: ignore[return-value]


def one_line_errors_iterator(door: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """The same for a generator."""

    @functools.wraps(door)
    def through(*args: Any, **kwargs: Any) -> Iterator[Any]:
        try:
            yield from door(*args, **kwargs)
        except OffsetLogError as error:
            _hide()
            raise error from None

    return through


def _hide() -> None:
    if not os.environ.get(DEBUG):
        os.environ[HIDE] = "1"


def warn(text: str) -> None:
    """One line on stderr, where Spark's own warnings are."""
    if text:
        line = shortened(printable(hide(" ".join(text.split()))))
        # A process whose query was stopped has nobody to tell, and goes on without.
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"offsetlog: warning: {line}\n")
            sys.stderr.flush()


_warned: set[str] = set()


def warn_once(text: str) -> None:
    """The same, for what is met again with each micro-batch."""
    if text not in _warned:
        _warned.add(text)
        warn(text)
