"""Forks: what a program opened belongs to the process that opened it.

Invariants:

1. Threads, locks and connections do not survive a fork, and a sender, a member of a group or a
   batch must not go on in two processes. So whatever was opened before a fork is the parent's:
   in the child it refuses by one error, and its closing does nothing.
2. A check costs no request and takes no lock: a lock may have been held at the fork.
"""

from __future__ import annotations

import os

from offsetlog.errors import InvalidRequestError

_forks = 0
"""How many forks lie between this process and the one that loaded this module."""


def process() -> int:
    """A mark of this process, to be kept by what is opened in it."""
    return _forks


def is_foreign(made_in: int) -> bool:
    """Whether something that kept this mark was opened before a fork."""
    return made_in != _forks


def check(made_in: int) -> None:
    """Refuse to use in a child process what its parent opened."""
    if made_in != _forks:
        raise InvalidRequestError(
            "This log was opened before the process was forked.",
            "Open it again in the child process, or start that with multiprocessing's 'spawn'.",
        )


def _forked() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
