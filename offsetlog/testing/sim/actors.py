"""Who acts in a history, by the names that a plan uses."""

from __future__ import annotations

from .readers import reader
from .scene import Role
from .senders import producer, query
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
    "reader": reader,
    "publisher": publisher,
    "maintainer": maintainer,
    "collector": collector,
    "compactor": compactor,
    "forgetter": forgetter,
}
