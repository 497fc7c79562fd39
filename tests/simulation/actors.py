"""Who acts in a history, by the names that a plan uses."""

from __future__ import annotations

from tests.simulation.groups import resetter, tidier, worker
from tests.simulation.readers import reader
from tests.simulation.scene import Role
from tests.simulation.senders import producer, query, stranger
from tests.simulation.sinks import sink
from tests.simulation.streams import founder, stream
from tests.simulation.upkeep import (
    administrator,
    collector,
    compactor,
    eraser,
    forgetter,
    keycompactor,
    maintainer,
    publisher,
)

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
    "tidier": tidier,
    "reader": reader,
    "publisher": publisher,
    "maintainer": maintainer,
    "collector": collector,
    "compactor": compactor,
    "forgetter": forgetter,
    "keycompactor": keycompactor,
    "eraser": eraser,
}
