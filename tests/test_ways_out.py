"""Text of others leaves the product by one function: here its modules are walked for other ways.

Records' bytes to a pipe are what was stored; all else passes ``printable``, ``as_html``, a logger
of ``get_logger``, or the classes of ``offsetlog.errors``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from offsetlog.client.notebook_html import (
    GroupInfo,
    GroupList,
    GroupSummary,
    LagTable,
    MemberInfo,
    ResetPlan,
)
from offsetlog.client.topic import PartitionInfo, TopicInfo, TopicList
from offsetlog.core.group.lag import Lag, total
from offsetlog.core.group.reset import Move
from offsetlog.values import TopicPartition
from pyspark_offsetlog.about.lag_report import LagReport

CHECKOUT = Path(__file__).parents[1]
MODULES = sorted(
    [*(CHECKOUT / "offsetlog").rglob("*.py"), *(CHECKOUT / "spark_plugin").rglob("*.py")]
)
ALLOWED = {
    # The only writers to a terminal, each behind ``printable``.
    "offsetlog/cli/output.py": {"sys.stdout", "sys.stderr", "click.echo", "click.confirm",
                                "traceback.format_exc"},
    "spark_plugin/pyspark_offsetlog/runtime/user_errors.py": {"sys.stderr"},
    "spark_plugin/pyspark_offsetlog/about/listener.py": {"sys.stdout"},
    "spark_plugin/pyspark_offsetlog/runtime/planner_server.py": {"sys.stdout", "sys.stderr"},
    "offsetlog/text.py": {"html.escape"},
    "offsetlog/logs.py": {"logging.getLogger"},
    # Silences a library's own logger.
    "offsetlog/storage/object/gcs.py": {"logging.getLogger"},
    # Run by whoever builds a wheel; no part of one.
    "spark_plugin/java/build.py": {"print"},
    # To files.
    "offsetlog/storage/local/files.py": {"os.write"},
    "offsetlog/testing/history/recorder.py": {"os.write"},
    # Findings of a checker that a developer runs on files of their own.
    "offsetlog/testing/history/report.py": {"print"},
}  # fmt: skip
WAYS = {
    "print", "sys.stdout", "sys.stderr", "click.echo", "click.secho", "click.confirm",
    "click.prompt", "html.escape", "logging.getLogger", "logging.warning", "logging.error",
    "traceback.print_exc", "traceback.format_exc", "traceback.print_exception", "os.write",
    "rich.print",
}  # fmt: skip


def ways_out(module: Path) -> Iterator[tuple[str, int]]:
    """(what is used, line)."""
    for node in ast.walk(ast.parse(module.read_text())):
        name = None
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
        if name in WAYS:
            yield name, node.lineno


def relative(module: Path) -> str:
    return module.relative_to(CHECKOUT).as_posix()


def test_no_module_has_a_way_out_of_its_own() -> None:
    others = {
        f"{relative(module)}:{line}: {name}"
        for module in MODULES
        if not relative(module).startswith("offsetlog/demo/")
        for name, line in ways_out(module)
        if name not in ALLOWED.get(relative(module), set())
    }
    assert others == set()


def test_what_is_allowed_is_used() -> None:
    unused = {
        (name, way)
        for name, ways in ALLOWED.items()
        for way in ways - {used for used, _ in ways_out(CHECKOUT / name)}
    }
    assert unused == set()


def test_every_warning_is_of_our_class() -> None:
    """Other classes would show their text as it is."""
    others = []
    for module in MODULES:
        for node in ast.walk(ast.parse(module.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("warn", "warn_explicit")
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "warnings"
                and not any(
                    isinstance(part, ast.Name) and part.id == "OffsetLogWarning"
                    for part in ast.walk(node)
                )
            ):
                others.append(f"{relative(module)}:{node.lineno}")
    assert others == []


EVIL = "<img src=x onerror=alert(1)>\x1b[2J\u202e&\ud800\n"


def test_a_notebook_gets_text_and_no_html() -> None:
    part = PartitionInfo(0, 0, 5, 10, 5)
    topic = TopicInfo(EVIL, (part,), {EVIL: EVIL}, {EVIL: EVIL}, 1)
    lag = Lag(EVIL, 0, 1, 0, 5, 4, 10, 1.5, 0, False, EVIL, EVIL)
    lines = (lag,)
    member = MemberInfo(EVIL, EVIL, EVIL, (EVIL,), EVIL, 1, (TopicPartition(EVIL, 0),))
    move = Move(EVIL, 0, 1, 2, 0, 5, EVIL)
    shown: list[Any] = [
        topic, TopicList([topic]), LagTable(lines, total(lines)),
        GroupInfo(EVIL, EVIL, 1, 0, (member,), lines, total(lines)),
        GroupList([GroupSummary(EVIL, "Stable", 1, 1)]),
        ResetPlan(EVIL, (move,), executed=False),
        LagReport(EVIL, "run", 1, "at", (EVIL,), lines),
    ]  # fmt: skip
    for value in shown:
        page = value._repr_html_()
        assert "<img" not in page and "onerror" in page, value
        assert page.isprintable() and page.encode()
    for text in (repr(shown[-2]), str(shown[-1])):
        assert text.replace("\n", "").isprintable() and "\nalert" not in text
