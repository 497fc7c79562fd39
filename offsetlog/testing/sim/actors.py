"""Who acts in a history, by the names that a plan uses."""

from __future__ import annotations

from .groups import resetter, worker
from .readers import reader
from .scene import Role
from .senders import producer, query, stranger
from .sinks import sink
from .streams import founder, stream
from .upkeep import administrator, collector, compactor, forgetter, maintainer, publisher

THREADS: dict[int, list[Role]] = {
    0: [publisher],
    1: [producer, publisher],
    2: [maintainer, publisher],
}
"""What else runs in some producers' processes, upon the same handle."""
ACTORS: dict[str, Role] = {
    "admin": administrator,
    "producer": producer,
    "query": query,
    "stranger": stranger,
    "sink": sink,
    "founder": founder,
    "worker": worker,
    "stream": stream,
    "resetter": resetter,
    "reader": reader,
    "publisher": publisher,
    "maintainer": maintainer,
    "collector": collector,
    "compactor": compactor,
    "forgetter": forgetter,
}
