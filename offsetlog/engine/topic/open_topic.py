"""All that is kept open for one topic: its chain, stored states, reader and writer.

Invariants:

1. One ``OpenTopic`` for a topic and an open ``Log``: its threads share what was folded.
2. ``state`` and ``refresh`` have seen every entry that was acknowledged before the call;
   ``advance`` asks once, ``recent_state`` if what is known is five seconds old, and
   ``known_state`` does not ask.
3. In a process that was forked since, it refuses before it takes a lock or asks the storage.
"""

from __future__ import annotations

import difflib
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from offsetlog.core.topic.entry import Body, Counted, Entry, Void
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.append.writer import Writer
from offsetlog.engine.env import Env
from offsetlog.engine.topic.chain import Ahead, Chain
from offsetlog.engine.topic.reader import Reader, Spend
from offsetlog.engine.topic.recent_entries import RecentEntries
from offsetlog.engine.topic.stored_state import StoredState
from offsetlog.engine.topic.topic_table import TopicTable
from offsetlog.errors import CorruptLogError, InvalidRequestError, OffsetLogError, UnknownTopicError
from offsetlog.format import entries as entry_format
from offsetlog.format.names import ROOT_FILE, topic_folder
from offsetlog.logs import get_logger
from offsetlog.storage import forks
from offsetlog.storage.store import Store
from offsetlog.values import TopicConfig, settings_of

logger = get_logger(__name__)


class OpenTopic:
    def __init__(
        self,
        store: Store,
        name: str,
        env: Env,
        pool: ThreadPoolExecutor | None,
        recent: RecentEntries | None = None,
    ) -> None:
        self.name = name
        self.chain = Chain(store, topic_folder(name), env, pool, recent)
        self.stored = StoredState(self.chain)
        self.reader = Reader(self.chain, self.stored, pool)
        self.writer = Writer(self.chain, pool)
        self.table = TopicTable(self.chain, self.stored)
        self.gathering: weakref.WeakSet[Any] = weakref.WeakSet()
        """Lanes of keyed producers with a batch that is not written yet."""
        self.dropped: dict[tuple[str, int], str] = {}
        """What became of such batches whose producers were dropped, by app_id and sequence."""
        self.acknowledged: dict[str, int] = {}
        """The highest sequence of an app_id that this process saw acknowledged."""
        self._made_in = forks.process()

    # --- its state -------------------------------------------------------------------------

    def state(self) -> TopicState:
        """The topic's state at the end of its chain."""
        forks.check(self._made_in)
        return self._of_existing(self.stored.refresh())

    def advance(self, ahead: Ahead | None = None) -> TopicState:
        """The topic's state after one request, which need not reach the end of the chain."""
        forks.check(self._made_in)
        return self._of_existing(self.stored.advance(ahead))

    def known_state(self) -> TopicState:
        """The topic's state as it is known; only one that was never opened is asked for."""
        forks.check(self._made_in)
        if not self.chain.state.tip:
            self.stored.open()
        return self._of_existing(self.chain.state)

    def recent_state(self) -> TopicState:
        """The topic's state as it was five seconds ago, or later: what reads are planned from."""
        forks.check(self._made_in)
        return self._of_existing(self.stored.recent())

    def state_to_write(self) -> TopicState:
        """The topic's state as it is known: whether what is written counts is the fold's to say.
        One that was not there when it was last looked at may have been made since."""
        forks.check(self._made_in)
        state = self.chain.state
        if not state.alive or state.topic != self.name:
            self.stored.refresh()
        return self._of_existing(self.chain.state)

    def was_made_again(self, state: TopicState) -> bool:
        """Whether the topic of a state was deleted since and created again."""
        now = self.chain.state
        is_there = now.alive and now.topic == self.name
        return is_there and now.created_at_entry != state.created_at_entry

    def refresh(self) -> TopicState:
        """The state at the end of the chain, whether or not the topic exists."""
        forks.check(self._made_in)
        state = self.stored.refresh()
        if state.tip and topic_folder(state.topic) != self.chain.folder:
            raise CorruptLogError(
                f"The folder {self.chain.folder!r} holds the chain of topic {state.topic!r}, which "
                f"belongs into {topic_folder(state.topic)!r}.",
                "Folders of a root are not renamed or copied within it: put it back.",
            )
        return state

    def _of_existing(self, state: TopicState) -> TopicState:
        if not state.alive or state.topic != self.name:
            raise unknown_topic(self.name, state, self.chain.store)
        return state

    def check_process(self) -> None:
        """Refuse in a process that was forked since."""
        forks.check(self._made_in)

    @property
    def config(self) -> TopicConfig:
        return settings_of(self.chain.state.config)

    # --- what is asked of it ---------------------------------------------------------------

    def offset_for_time(
        self, partition: int, time_ms: int, spend: Spend | None = None
    ) -> int | None:
        """The first offset whose record is at or after a time; None when there is none."""
        if isinstance(time_ms, bool) or not isinstance(time_ms, int):
            raise InvalidRequestError(f"{time_ms!r} is not a time.", "It is whole milliseconds.")
        place = self.reader.offset_for_time(partition, time_ms, spend)
        return None if place is None else place[0]

    def decide(self, body: Body) -> Void | None:
        """Land an entry without rows; None if it counted."""
        forks.check(self._made_in)
        env = self.chain.env
        entry = Entry(env.new_id(), env.now_ms(), body)
        verdict = self.chain.land(entry_format.encode(entry, None, "none")).verdict
        if isinstance(verdict, Void):
            logger.debug("%s: %s is void: %s", self.name, type(body).__name__, verdict.detail)
        return None if isinstance(verdict, Counted) else verdict


def unknown_topic(name: str, state: TopicState, store: Store | None = None) -> UnknownTopicError:
    """That there is no such topic, and what may have been meant."""
    if state.alive:
        return UnknownTopicError(f"There is no topic {name!r}.", f"Did you mean {state.topic!r}?")
    gone = f"Topic {name!r} was deleted." if state.tip else f"There is no topic {name!r}."
    near = [] if store is None or state.tip else _near(name, store)
    if near:
        return UnknownTopicError(gone, f"Did you mean {near[0]!r}?")
    if store is not None and not state.tip and _is_no_root(store):
        gone = f"There is no topic {name!r}, and no log at {store.url}."
        return UnknownTopicError(gone, "Check the address; it is the folder of all topics.")
    return UnknownTopicError(gone, "'offsetlog topics list' names those that exist.")


def _is_no_root(store: Store) -> bool:
    try:
        return store.get(ROOT_FILE, 0, 1) is None
    except OffsetLogError:
        return False


def _near(name: str, store: Store) -> list[str]:
    """Folders of topics with a similar name; nothing when they can't be listed."""
    try:
        own = topic_folder(name)
        folders = [f for f in store.folders("") if f[:1] not in "._" and f != own]
    except OffsetLogError:
        return []
    return difflib.get_close_matches(topic_folder(name), folders, n=1, cutoff=0.75)
