"""Whether the demo with Spark can run here, and running it.

Invariants:

1. Nothing of Spark is imported here: it runs in a process of its own.
2. What Spark logs goes to a file; only a failure shows the end of it.
"""

from __future__ import annotations

import importlib.util
import re
from importlib import metadata

import click

from .demo_story import Finding
from .doctor import MISSING, java

SPARK = (4, 2)
JAVA = 17


class DemoFailed(Exception):
    """The story could not be told to its end."""


def spark_lacks() -> str:
    """Why the demo with Spark can't run here; empty if it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is not installed (pip install 'offsetlog[spark]')"
    version = metadata.version("pyspark")
    if _numbers(version) < SPARK:
        return f"PySpark is {version}, and {SPARK[0]}.{SPARK[1]} or newer is needed"
    found = java()
    if found == MISSING:
        return f"there is no Java (Spark needs {JAVA} or newer, by JAVA_HOME or the PATH)"
    if not found[:1].isdigit():  # a JAVA_HOME such as /opt/jdk-21 is no version
        return f"{found} (Spark needs Java {JAVA} or newer; JAVA_HOME says which)"
    if _numbers(found)[:1] < (JAVA,):
        return f"Java is {found}, and {JAVA} or newer is needed"
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def run(folder: str, seconds: float, as_json: bool) -> list[Finding]:
    """Tell the story; no process is left behind, whatever happens."""
    from ..demo.screen import Late, screen_for
    from ..demo.story import DriverFailed, Story
    from ..demo.tell import Pace, tell

    story = Story(folder)
    try:
        return tell(story, screen_for(story, as_json), Pace.of(seconds))
    except (DriverFailed, Late) as error:
        for line in story.driver_log():
            click.echo(f"  {line}", err=True)
        raise DemoFailed(str(error)) from None
    finally:
        story.stop()
