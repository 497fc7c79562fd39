"""The topics that a query reads, and looking at them.

Invariants:

1. A topic that ``subscribe`` or ``assign`` names must be there when a query starts. A pattern
   finds within names, as in Kafka, and takes in topics that come later. A named topic that was
   deleted is one that the chain says so of; without a first entry it is not in sight.
2. An idle look costs one request for each topic, and one listing for a pattern. A look finds
   every topic that matches a pattern and was made before it. On a disk a folder without one is
   passed over while no entry comes to it. On a server it costs a request for each matching topic
   that was deleted; a topic that does not match is passed over for a while: only if it is deleted
   and one made that differs in case or dots alone is that one found late.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from offsetlog.client.log import Log
from offsetlog.core.group.reset import OffsetSpan
from offsetlog.core.topic.state import TopicState
from offsetlog.engine import FolderTakenError, OpenTopic
from offsetlog.errors import UnknownTopicError
from offsetlog.values import TopicPartition
from pyspark_offsetlog.options.parse import TopicSubscription
from pyspark_offsetlog.source.next_batch import Look
from pyspark_offsetlog.source.offsets import Positions
from pyspark_offsetlog.source.visibility import RECREATED_HINT, state_with

UNMATCHED_SECONDS = 30.0
"""After so long a folder whose topic did not match is looked at again, where that is a request."""


class _Passed(NamedTuple):
    """A folder without a topic that matches, as it was looked at last."""

    topic: OpenTopic
    tip: int
    not_before: float
    """Where a look is a request: when the next one is due."""


class SubscribedTopics:
    def __init__(self, log: Log, subscription: TopicSubscription) -> None:
        self._log = log
        self._pattern = re.compile(subscription.pattern) if subscription.pattern else None
        self._assigned = [TopicPartition(*tp) for tp in subscription.assigned]
        self.names = subscription.topics or tuple(sorted({tp.topic for tp in self._assigned}))
        """Of the topics that are subscribed to by name; empty for a pattern."""
        self._topics: dict[str, OpenTopic] = {}
        """As they were opened first: the query's offsets are of those chains, and never of one
        that took the folder."""
        self._passed: dict[str, _Passed] = {}
        """Folders without a topic that matches."""
        self._folders: dict[str, str] = {}
        """The names of the topics that the pattern found, by folder."""

    def topic(self, name: str) -> OpenTopic:
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = self._log.open_topic(name)
        return topic

    # --- looking ---------------------------------------------------------------------------

    def look(self, skip_deleted: bool = False) -> Look:
        """The state of each topic, by one request for each in which nothing is new. With
        ``skip_deleted``, a named topic that was deleted is left out."""
        states: dict[str, TopicState] = {}
        for name in self._matching_names() if self._pattern is not None else self.names:
            topic = self.topic(name)
            try:
                states[name] = topic.state()
            except FolderTakenError as error:
                raise FolderTakenError(error.message, RECREATED_HINT) from None
            except UnknownTopicError:
                if self._pattern is None and not (skip_deleted and topic.chain.state.tip):
                    raise
                self._folders.pop(topic.chain.folder, None)
                again = None if self._pattern is None else self._match_in(topic.chain.folder)
                if again is not None:  # It was made again under a name of the same folder.
                    self._folders[topic.chain.folder] = again
                    states[again] = self.topic(again).state()
        return Look(states, self._spans(states))

    def _spans(self, states: Mapping[str, TopicState]) -> dict[TopicPartition, OffsetSpan]:
        """Of each partition that is read."""
        partitions: Iterable[TopicPartition] = self._assigned or (
            TopicPartition(topic, partition)
            for topic, state in states.items()
            for partition in range(state.partitions)
        )
        spans = {}
        for tp in partitions:
            state = states.get(tp.topic)
            if state is not None and tp.partition < state.partitions:
                part = state.parts[tp.partition]
                spans[tp] = OffsetSpan(part.start, part.end)
        return spans

    def _with(self, look: Look, states: Mapping[str, TopicState]) -> Look:
        """A look with newer states of some topics."""
        states = {**look.states, **states}
        return look._replace(states=states, spans=self._spans(states))

    def look_again(self, look: Look, topics: Iterable[str]) -> Look:
        """What is known of these topics is older than something else that was seen."""
        return self._with(look, {name: self.topic(name).state() for name in topics})

    def look_for(self, look: Look, positions: Positions) -> Look:
        """The same look with all of these positions in sight, but for those that are not
        subscribed to and those that the chain says are gone; an error if one of them is neither
        in sight nor gone."""
        for tp, offset in positions.items():
            if look.reaches(tp, offset) or not self.may_read(tp):
                continue
            # The next listing shall find it: it was there, whatever its folder held then.
            topic = self.topic(tp.topic)
            self._passed.pop(topic.chain.folder, None)
            state = state_with(topic, tp.partition, offset)
            if state.alive and state.topic == tp.topic and tp.partition < state.partitions:
                look = self._with(look, {tp.topic: state})
        return look

    def may_read(self, tp: TopicPartition) -> bool:
        """Whether a partition would be read if it was there."""
        if self._pattern is not None:
            return self._pattern.search(tp.topic) is not None
        return tp in self._assigned if self._assigned else tp.topic in self.names

    def check(self, look: Look, read_before: Collection[TopicPartition] = ()) -> None:
        """What is named and is not there, nor was ``read_before``, is an error."""
        topics_before = {topic for topic, _ in read_before}
        for topic in self.names:
            if topic not in look.states and topic not in topics_before:
                self.topic(topic).state()
        for tp in self._assigned:
            state = look.states.get(tp.topic)
            if state is not None and tp.partition >= state.partitions and tp not in read_before:
                raise UnknownTopicError(
                    f"assign names partition {tp.partition} of topic {tp.topic!r}, which does "
                    "not exist.",
                    f"It has {state.partitions}, from 0.",
                )

    # --- a pattern -------------------------------------------------------------------------

    def _matching_names(self) -> Iterable[str]:
        """Names of the topics that the pattern finds, by one listing of the root."""
        assert self._pattern is not None
        self._log.root.check()  # A root that is not there is an error, not an empty list.
        names = []
        for folder in sorted(f for f in self._log.store.folders("") if f[:1] not in "._"):
            name = self._folders.get(folder) or self._match_in(folder)
            if name is not None:
                self._folders[folder] = name
                names.append(name)
        return names

    def _match_in(self, folder: str) -> str | None:
        """The name of the topic in a folder, if it matches; the folder's own is a form of it."""
        assert self._pattern is not None
        now = self._log.env.monotonic()
        passed = self._passed.get(folder)
        if passed is not None and passed.topic.chain.state.tip == passed.tip:
            is_due = now >= passed.not_before
            if not is_due or passed.topic.chain.is_unchanged():
                return None
        topic = self._log.open_topic(folder)
        state = topic.refresh()
        matches = self._pattern.search(state.topic) is not None
        if state.alive and matches:
            self._passed.pop(folder, None)
            return state.topic
        is_other = state.tip > 0 and not matches and not topic.chain.has_free_looks
        not_before = now + UNMATCHED_SECONDS if is_other else 0.0
        self._passed[folder] = _Passed(topic, state.tip, not_before)
        return None
