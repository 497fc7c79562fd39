"""``python -m bench.api_page``: write ``docs/api.md`` from the docstrings of the public names.

``--check`` only says whether the page is current.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import offsetlog
import offsetlog.spark

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
CLASSES: dict[type, tuple[str, ...]] = {
    offsetlog.Log: (
        "create_topic", "delete_topic", "topics", "topic", "producer", "consumer", "groups",
        "group", "positions", "maintain", "verify", "close",
    ),
    offsetlog.Producer: ("send", "send_arrow", "flush", "close"),
    offsetlog.Consumer: (
        "subscribe", "assign", "unsubscribe", "assignment", "subscription", "poll", "poll_arrow",
        "seek", "seek_to_beginning", "seek_to_end", "seek_to_time", "position", "committed",
        "commit", "commit_async", "pause", "resume", "paused", "beginning_offsets", "end_offsets",
        "offsets_for_times", "close",
    ),
    offsetlog.Topic: (
        "name", "partitions", "beginning_offsets", "end_offsets", "offsets_for_times", "describe",
        "alter", "delete_records", "forget_app_ids",
    ),
    offsetlog.Group: (
        "state", "members", "committed", "lag", "describe", "reset", "delete", "delete_offsets",
        "remove_members",
    ),
}  # fmt: skip
VALUES = (offsetlog.Record, offsetlog.RecordMetadata, offsetlog.TopicPartition)
SPARK = ("session", "register", "topics", "positions", "lag", "offsets", "views", "watch_lag")
HEAD = """# The Python API

Made by `python -m bench.api_page` from the docstrings; don't edit. How to use it:
[README](../README.md), [groups](groups.md), [Spark](spark.md).
"""


def _text(thing: object) -> str:
    return (inspect.getdoc(thing) or "").strip().replace("``", "`")


def _function(name: str, function: Any) -> str:
    if isinstance(function, property):
        return f"#### `{name}`\n{_text(function)}\n"
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "self"
    ]
    signature = str(inspect.Signature(parameters))
    return f"#### `{name}{signature}`\n{_text(function)}\n"


def _value(kind: Any) -> str:
    return f"### {kind.__name__}\n`{', '.join(kind._fields)}`\n\n{_text(kind)}\n"


def page() -> str:
    parts = [HEAD, f"## offsetlog\n\n{_function('open', offsetlog.open)}"]
    for kind, names in CLASSES.items():
        parts.append(f"### {kind.__name__}\n{_text(kind)}\n")
        parts += [_function(name, inspect.getattr_static(kind, name)) for name in names]
    parts.append("## Values\n")
    parts += [_value(kind) for kind in VALUES]
    parts.append("## Errors and warnings\n\n| class | base | meaning |\n|---|---|---|")
    for name in offsetlog.__all__:
        thing = getattr(offsetlog, name)
        if inspect.isclass(thing) and issubclass(thing, Exception):
            meaning = " ".join(_text(thing).split())
            parts.append(f"| `{name}` | `{thing.__base__.__name__}` | {meaning} |")
    parts.append("\n## offsetlog.spark\n")
    parts += [_function(name, getattr(offsetlog.spark, name)) for name in SPARK]
    return "\n".join(parts).rstrip() + "\n"


def main(arguments: list[str] | None = None) -> int:
    check = "--check" in (sys.argv[1:] if arguments is None else arguments)
    text = page()
    if not check:
        PAGE.write_text(text)
    elif not PAGE.exists() or PAGE.read_text() != text:
        print("docs/api.md is not current: run python -m bench.api_page")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
