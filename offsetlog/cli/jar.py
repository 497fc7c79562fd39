"""``offsetlog jar``: where the jar for Spark's JVM is, built first where there is none.

Invariant: it prints a path and nothing else, so that a shell can pass it on.
"""

from __future__ import annotations

import click

from offsetlog.cli.base import Command
from offsetlog.cli.failures import FAILED
from offsetlog.cli.output import print_json, print_line, print_message
from offsetlog.cli.session import CliSession, pass_session
from offsetlog.environment import version_of
from offsetlog.spark_jar import SparkJar, ready_jar


@click.command(
    "jar",
    cls=Command,
    examples="""
    $ offsetlog jar
    $ spark-submit --jars "$(offsetlog jar)" job.py
    """,
)
@pass_session
@click.pass_context
def command(ctx: click.Context, session: CliSession) -> None:
    """Print the path of the jar with which Spark's JVM reads and writes segments itself.

    It is the one for the Spark that is installed. Where there is none it is built with javac, of
    the sources in this package and against the jars of that Spark, a vendor's too, into the cache
    folder of the user. That takes some seconds, once. Nothing is downloaded. A session of
    offsetlog.spark.session() does the same by itself.

    The exit status is 1 if there is none and none can be built. Then Python reads and writes,
    which is slower.
    """
    version = version_of("pyspark")
    jar = SparkJar(None, "PySpark is not installed") if version is None else ready_jar(version)
    ctx.exit(print_jar(session, jar, {"path": jar.path, "reason": jar.reason}))


def print_jar(
    session: CliSession, jar: SparkJar, document: dict[str, object], advice: str = ""
) -> int:
    """Its path, or why there is none and ``advice``; as JSON the document. The exit status."""
    if session.json:
        print_json(document)
    elif jar.path is not None:
        print_line(jar.path)
    if jar.path is not None:
        return 0
    why = f"there is no jar: {jar.reason}. Python reads, which needs none and is slower"
    print_message(f"{why}{advice}.")
    return FAILED
