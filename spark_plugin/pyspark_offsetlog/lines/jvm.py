"""Looks into Spark's JVM, where a session has one: which options a query's sources have, whether
a data source is known by its name, and the pattern of its log.

Invariants:

1. Nothing here is public in Spark. What is not as expected is None or False, never an error.
"""

from __future__ import annotations

from typing import Any

PYTHON_STREAM = "PythonMicroBatchStream"
"""What the description of a source of ours has in it, in a query's progress."""


def source_options(query: Any, source: str) -> dict[str, dict[str, str]] | None:
    """The options of the query's sources of a name, by their descriptions."""
    try:
        execution = query._jsq.streamingQuery()
        leaves = execution.logicalPlan().collectLeaves()
        out = {}
        for number in range(leaves.size()):
            leaf = leaves.apply(number)
            if leaf.getClass().getSimpleName() != "StreamingDataSourceV2ScanRelation":
                continue
            if leaf.relation().table().name() == source:
                options = dict(leaf.relation().options().asCaseSensitiveMap())
                out[leaf.stream().toString()] = options
        return out
    except Exception:  # noqa: BLE001 - Spark's insides are another than those that we know
        return None


def finds_source(spark: Any, name: str) -> bool:
    """Whether a session finds a data source by its name."""
    try:
        state = spark._jsparkSession.sessionState()
        return bool(state.dataSourceManager().dataSourceExists(name))
    except Exception:  # noqa: BLE001 - Spark Connect has no such thing, nor need others
        return False


def jars(spark: Any) -> list[str] | None:
    """The jars that a session's context was given; None where it does not say."""
    try:
        listed = spark.sparkContext._jsc.sc().listJars()
        return [str(listed.apply(number)) for number in range(listed.size())]
    except Exception:  # noqa: BLE001 - Spark Connect has no such thing, nor need others
        return None


def replace_log_pattern(spark: Any, old: str, new: str) -> bool:
    """Let the console's log have another pattern in place of ``old``; whether it has it now."""
    try:
        return _replace_log_pattern(spark._jvm, old, new)
    except Exception:  # noqa: BLE001 - another logger, or Spark Connect
        return False


def _replace_log_pattern(jvm: Any, old: str, new: str) -> bool:
    core = jvm.org.apache.logging.log4j.core
    context = jvm.org.apache.logging.log4j.LogManager.getContext(False)
    root = context.getConfiguration().getRootLogger()
    console = root.getAppenders().get("console")
    if console is None or console.getLayout().getConversionPattern() != old:
        return False
    layout = core.layout.PatternLayout.newBuilder().withPattern(new)
    # Before Spark 4.1 log4j does not see that the pattern has the exception, and writes it again.
    layout = layout.withAlwaysWriteExceptions(False).build()
    target = core.appender.ConsoleAppender.Target.SYSTEM_ERR
    builder = core.appender.ConsoleAppender.newBuilder()
    # Spark's own level for shells is a filter of the appender.
    builder.setName("console").setLayout(layout).setFilter(console.getFilter())
    shorter = builder.setTarget(target).build()
    shorter.start()
    root.removeAppender("console")
    root.addAppender(shorter, None, None)
    context.updateLoggers()
    return True
