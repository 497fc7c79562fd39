"""A store whose answers to put-if-absent a test writes in advance."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from offsetlog.core.topic.entry import Create
from offsetlog.engine.env import Env
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import StorageError
from offsetlog.storage.memory import MemoryStore
from offsetlog.storage.store import Conflict, PutResult, Unknown

_roots = itertools.count()
_ids = itertools.count(1)


class ScriptedStore(MemoryStore):
    """``script`` holds one word for each put of an entry to come: ``ok``, ``unknown`` (it never
    lands), ``lost`` (it landed, no answer), ``hidden`` (it landed, the client library met its
    own file), ``refused``. An empty script means ``ok``."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.script: list[str] = []
        self.fail_reads = 0
        self.after_put: Callable[[str], None] = lambda name: None
        """Called when a put took effect, before its sender hears of it."""

    def _create(self, name: str, data: bytes) -> PutResult:
        word = self.script.pop(0) if self.script else "ok"
        if word == "refused":
            raise StorageError("Could not create it: the disk is full.")
        if word == "unknown":
            return Unknown("no answer")
        result = super()._create(name, data)
        self.after_put(name)
        if word == "lost":
            return Unknown("no answer")
        return Conflict() if word == "hidden" else result

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes | None:
        if self.fail_reads and "/_log/" in name:
            self.fail_reads -= 1
            raise StorageError(f"Could not read {name}.")
        return super().get(name, start, end)


def fresh_root() -> str:
    return f"scripted-{next(_roots)}"


def quick_env() -> Env:
    """An ``Env`` in which nobody waits."""
    clock = itertools.count(1_700_000_000_000)
    return Env(
        lambda: next(clock),
        lambda: next(clock) / 1000,
        lambda: f"{next(_ids):032x}",
        lambda: 0.5,
        lambda seconds: None,
    )


class OneTopicHost:
    """What a producer or consumer needs of a ``Log``, for handles made by a test."""

    def __init__(self, handle: OpenTopic) -> None:
        self.handle = handle
        self.env = handle.chain.env

    def open_topic(self, name: str) -> OpenTopic:
        return self.handle

    def group_commit(self, name: str) -> Any:
        raise AssertionError("a keyed producer needs no appender")


def topic(
    root: str | None = None, partitions: int = 2, create: bool = True
) -> tuple[ScriptedStore, OpenTopic]:
    store = ScriptedStore(root or fresh_root())
    handle = OpenTopic(store, "t", quick_env(), None)
    if create:
        handle.refresh()
        config = (("retention.ms", "-1"),)
        assert handle.decide(Create("t", partitions, config, handle.chain.state.head)) is None
    else:
        handle.refresh()
    return store, handle
