"""What drives the core: effects, threads, locks and waits live here.

This module is the plugin's door to the engine and to what lies below it: the plugin imports these
names from here and no module of ``engine``, ``format`` or ``storage``. Each is loaded when it is
first asked for, so that importing ``offsetlog`` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offsetlog.engine.append.distributed_append import (
        TaskShare,
        TaskStage,
        TopicAtPlanning,
        append_shares,
        facts_of,
        may_be_again,
        records_in,
        share_of,
    )
    from offsetlog.engine.append.record_checks import check_headers
    from offsetlog.engine.append.writer import Receipt, Sender
    from offsetlog.engine.group.commit_queue import CommitThread
    from offsetlog.engine.group.heartbeats import Heartbeat, HeartbeatTiming, wait_until_silent
    from offsetlog.engine.group.lag import lag_of
    from offsetlog.engine.topic.chain import FolderTakenError
    from offsetlog.engine.topic.open_topic import OpenTopic
    from offsetlog.engine.topic.reader import FetchedBatch
    from offsetlog.engine.upkeep.maintenance import (
        GRACE_MS,
        Maintained,
        Maintenance,
        Rewritten,
    )
    from offsetlog.format import facts_arrow, record_schema
    from offsetlog.format.names import topic_folder
    from offsetlog.redact import safe_url
    from offsetlog.storage.faults import disk_failures
    from offsetlog.storage.open import parse_option, refuse_one_slash

__all__ = [
    "CommitThread",
    "FetchedBatch",
    "FolderTakenError",
    "GRACE_MS",
    "Heartbeat",
    "HeartbeatTiming",
    "Maintained",
    "Maintenance",
    "OpenTopic",
    "Receipt",
    "Rewritten",
    "Sender",
    "TaskShare",
    "TaskStage",
    "TopicAtPlanning",
    "append_shares",
    "check_headers",
    "disk_failures",
    "facts_arrow",
    "facts_of",
    "lag_of",
    "may_be_again",
    "parse_option",
    "record_schema",
    "records_in",
    "refuse_one_slash",
    "safe_url",
    "share_of",
    "topic_folder",
    "wait_until_silent",
]

_HOMES = {
    "offsetlog.engine.append.distributed_append": (
        "TaskShare",
        "TaskStage",
        "TopicAtPlanning",
        "append_shares",
        "facts_of",
        "may_be_again",
        "records_in",
        "share_of",
    ),
    "offsetlog.engine.append.record_checks": ("check_headers",),
    "offsetlog.engine.append.writer": ("Receipt", "Sender"),
    "offsetlog.engine.group.commit_queue": ("CommitThread",),
    "offsetlog.engine.group.heartbeats": ("Heartbeat", "HeartbeatTiming", "wait_until_silent"),
    "offsetlog.engine.group.lag": ("lag_of",),
    "offsetlog.engine.topic.chain": ("FolderTakenError",),
    "offsetlog.engine.topic.open_topic": ("OpenTopic",),
    "offsetlog.engine.topic.reader": ("FetchedBatch",),
    "offsetlog.engine.upkeep.maintenance": (
        "GRACE_MS",
        "Maintained",
        "Maintenance",
        "Rewritten",
    ),
    "offsetlog.format": ("facts_arrow", "record_schema"),
    "offsetlog.format.names": ("topic_folder",),
    "offsetlog.storage.faults": ("disk_failures",),
    "offsetlog.storage.open": ("parse_option", "refuse_one_slash"),
    "offsetlog.redact": ("safe_url",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            home = import_module(module)
            # A module of ``format`` is an attribute of it only once it was imported.
            value = getattr(home, name, None) or import_module(f"{module}.{name}")
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
