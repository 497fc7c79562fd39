"""The topics that a query reads, and looking at them.

Invariants:

1. A topic that ``subscribe`` or ``assign`` names must be there when a query starts. A pattern
   finds within names, as in Kafka, and takes in topics that come later. A named topic that was
   deleted is one that the chain says so of; without a first entry it is not in sight.
2. An idle look costs one request for each topic, and one listing for a pattern. Folders in
   which a pattern found no topic of its own are passed over for a while, unless one of that
   name is expected (``expect``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from offsetlog.client.log import Log
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import UnknownTopicError
from offsetlog.format.names import topic_folder
from offsetlog.values import TopicPartition
from pyspark_offsetlog.options.check import TopicSubscription
from pyspark_offsetlog.source.visibility import state_with

LOOK_AGAIN = 30.0
"""Seconds after which a folder whose topic did not match is looked at again."""
LOOK_SOON = 1.0
"""The same for a folder without a topic: one that is being made, or was deleted."""


class SubscribedTopics:
    """What is subscribed to, as it was last looked at."""

    def __init__(self, log: Log, subscription: TopicSubscription) -> None:
        self._log = log
        self._subscription = subscription
        self._pattern = re.compile(subscription.pattern) if subscription.pattern else None
        self._names: tuple[str, ...] = subscription.topics or tuple(
            sorted({topic for topic, _ in subscription.assigned})
        )
        self._others: dict[str, float] = {}
        self._folders: dict[str, str] = {}
        self.states: dict[str, TopicState] = {}
        self.looked = False

    def names(self) -> tuple[str, ...]:
        """Of the topics that are subscribed to by name; empty for a pattern."""
        return self._names

    def handle(self, topic: str) -> OpenTopic:
        return self._log.topic_handle(topic)

    def look(self, fresh: bool = True, missing: bool = False) -> dict[str, TopicState]:
        """The state of each topic. ``fresh=False`` is one request for each where nothing is
        new. With ``missing``, a named topic that was deleted is left out."""
        found: dict[str, TopicState] = {}
        for topic in self._matching() if self._pattern is not None else self._names:
            handle = self.handle(topic)
            try:
                found[topic] = handle.state() if fresh else self._glance(topic, handle)
            except UnknownTopicError:
                if self._pattern is None and not (missing and handle.chain.state.tip):
                    raise
                self._folders = {f: name for f, name in self._folders.items() if name != topic}
        self.states, self.looked = found, True
        return found

    def look_again(self, names: Iterable[str]) -> None:
        """What is known of these topics is older than something else that was seen."""
        for topic in names:
            self.states[topic] = self.handle(topic).state()

    def expect(self, names: Iterable[str]) -> None:
        """Let the next look find these topics: they were there after the last one, whatever
        their folders held then."""
        for topic in names:
            self._others.pop(topic_folder(topic), None)

    def _glance(self, topic: str, handle: OpenTopic) -> TopicState:
        """A glance may find one entry of many. A query looks once for a micro-batch, so it must
        go on to the end: with an entry a batch it would fall behind for ever."""
        state, known = handle.glance(), self.states.get(topic)
        return state if known is not None and known.tip == state.tip else handle.state()

    def may_read(self, tp: TopicPartition) -> bool:
        """Whether a partition would be read if it was there."""
        if self._pattern is not None:
            return self._pattern.search(tp.topic) is not None
        assigned = self._subscription.assigned
        return tp in assigned if assigned else tp.topic in self._names

    def find(self, tp: TopicPartition, end: int) -> bool:
        """Whether a partition that was read up to ``end``, and was not seen by the last look, is
        there all the same; False if the chain says that it is gone."""
        state = state_with(self.handle(tp.topic), tp.partition, end)
        there = state.alive and state.topic == tp.topic and tp.partition < state.partitions
        if there:
            self.states[tp.topic] = state
        return there

    def partitions(self) -> list[TopicPartition]:
        """All that is read of the topics as they were last looked at."""
        if self._subscription.assigned:
            return self._assigned()
        return [
            TopicPartition(topic, partition)
            for topic, state in self.states.items()
            for partition in range(state.partitions)
        ]

    def _assigned(self) -> list[TopicPartition]:
        out = []
        for topic, partition in self._subscription.assigned:
            state = self.states.get(topic)
            if state is not None and partition < state.partitions:
                out.append(TopicPartition(topic, partition))
        return out

    def check(self, known: Collection[TopicPartition]) -> None:
        """What is named and is not there, nor was among the ``known``, is an error."""
        seen = {topic for topic, _ in known}
        for topic in self._names:
            if topic not in self.states and topic not in seen:
                self.handle(topic).state()
        for topic, partition in self._subscription.assigned:
            state = self.states.get(topic)
            missing = state is not None and partition >= state.partitions
            if state is not None and missing and TopicPartition(topic, partition) not in known:
                raise UnknownTopicError(
                    f"assign names partition {partition} of topic {topic!r}, which does not exist.",
                    f"It has {state.partitions}, from 0.",
                )

    def _matching(self) -> Iterable[str]:
        """Names of the topics that the pattern finds, by one listing of the root."""
        assert self._pattern is not None
        self._log.see_root()  # A root that is not there is an error, not an empty list.
        now = self._log.env.monotonic()
        out = []
        for folder in sorted(f for f in self._log.store.folders("") if f[:1] not in "._"):
            name = self._folders.get(folder)
            if name is None and now < self._others.get(folder, 0.0):
                continue
            if name is None:
                name = self._name_in(folder)
                if name is None or not self._pattern.search(name):
                    self._others[folder] = now + (LOOK_SOON if name is None else LOOK_AGAIN)
                    continue
                self._folders[folder] = name
            out.append(name)
        return out

    def _name_in(self, folder: str) -> str | None:
        """The name of the topic in a folder; the folder's own is a form of it."""
        handle = self._log.topic_handle(folder)
        state = handle.raw_state()
        return state.topic if state.alive else None
