"""Who comes again and again leaves a topic to another maintainer that looked after it meanwhile.

Invariants:

1. A round is left out only if somebody else began one since this maintainer last looked: the note
   with which each round reads the storage's clock has changed. So of several one does the work,
   and when it is gone another takes over at its next round but one.
2. No clocks are compared. Whoever begins at the very same moment works beside the other one,
   which does no harm.
"""

from __future__ import annotations

from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.format import names


class Turns:
    """What one maintainer saw of the rounds of all."""

    def __init__(self) -> None:
        self._seen: dict[str, int | None] = {}
        """When the last round of each topic began, by its folder."""

    def is_ours(self, topic: OpenTopic) -> bool:
        """Whether nobody began a round of this topic since the last look at it."""
        folder = topic.chain.folder
        is_new, before = folder not in self._seen, self._seen.get(folder)
        self.look(topic)
        return is_new or self._seen[folder] == before

    def look(self, topic: OpenTopic) -> None:
        """Look at who was there last, as after a round of one's own."""
        folder = topic.chain.folder
        info = topic.chain.store.info(names.clock_name(folder))
        self._seen[folder] = None if info is None else info.modified_ms
