"""Bugs that the oracle must find: mendings taken back, one at a time.

Most are planted in this process. Spark's JVM is another one: there a bug is a change of a source
file, and the session that is started next has the changed classes.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

JAVA = Path(__file__).parents[3] / "spark_plugin" / "java"


class Change(NamedTuple):
    """In a Java file of the plugin, one text in place of another."""

    file: str
    text: str
    becomes: str


_sources: tuple[Change, ...] = ()


@contextmanager
def changed(*changes: Change) -> Iterator[None]:
    """Sessions that begin meanwhile have these classes."""
    global _sources
    _sources = changes
    try:
        yield
    finally:
        _sources = ()


def class_path(jar: Path, place: Path) -> str:
    """What a JVM must look through first, so that it has the changed classes; empty: none are."""
    if not _sources:
        return ""
    import pyspark

    texts: dict[str, str] = {}
    for change in _sources:
        text = texts.get(change.file) or (JAVA / "offsetlog" / change.file).read_text()
        if change.text not in text:
            raise LookupError(f"{change.file} has no {change.text!r} any more")
        texts[change.file] = text.replace(change.text, change.becomes)
    sources, classes = place / "sources", place / "classes"
    shutil.rmtree(sources, ignore_errors=True)
    for name, text in texts.items():
        file = sources / "offsetlog" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    jars = Path(pyspark.__file__).parent / "jars"
    subprocess.run(
        ["javac", "-nowarn", "-proc:none", "--release", "17", "-d", classes,
         "-cp", f"{jars}/*:{jar}", *sources.rglob("*.java")],
        check=True, capture_output=True,
    )  # fmt: skip
    # All of ours is loaded by the loader that has the changed ones: they need each other.
    return f"{classes}:{jar}"
