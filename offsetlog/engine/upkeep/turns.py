"""Who comes again and again leaves a topic to another maintainer that looked after it meanwhile.

Invariants:

1. A round is left out only if somebody else's came to its end since this maintainer last looked:
   the note that a round stores as the last thing says when it began, and says something else now.
   So of several one does the work, and when it is gone, or its rounds fail, or are killed, another
   takes over at its next round but one.
2. No clocks are compared. Whoever begins before the other one's round has ended works beside it,
   which does no harm.
"""

from __future__ import annotations

from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.engine.upkeep.maintenance import read_note


class Turns:
    """What one maintainer saw of the rounds of all."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        """When the last round of each topic that came to its end began, by the topic's folder."""

    def is_ours(self, topic: OpenTopic) -> bool:
        """Whether nobody's round of this topic came to its end since the last look at it."""
        folder = topic.chain.folder
        is_new, before = folder not in self._seen, self._seen.get(folder)
        self.look(topic)
        return is_new or self._seen[folder] == before

    def look(self, topic: OpenTopic) -> None:
        """Look at who was there last, as after a round of one's own."""
        folder = topic.chain.folder
        self._seen[folder] = read_note(topic.chain).ended_ms
