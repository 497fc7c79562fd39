"""Bugs that the oracle must find: mendings taken back, one at a time.

Most are planted in this process. What Spark starts are others: its Pythons plant what ``PLACE`` in
their environment names, and for its JVM a bug is a change of a source file: the session that is
started next has the changed classes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from offsetlog.core.group import lag as core_lag
from offsetlog.core.topic import index, plan
from offsetlog.engine.group import lag
from offsetlog.engine.topic import chain, topic_table
from offsetlog.engine.topic.reader import Reader
from offsetlog.page import records
from tests.generators.registry import Bug

PLACE = "OFFSETLOG_PLANTED"
HERE = Path(__file__).parent
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


# --- answers that cover less than was asked ------------------------------------------------


def _part(self: Reader, partition: int, start: int, end: int) -> Any:
    return self.plan_part(partition, start, end).pieces


@contextmanager
def _parts() -> Iterator[None]:
    with mock.patch.object(Reader, "plan", _part):
        yield


@contextmanager
def _parts_within(owner: Any, name: str) -> Iterator[None]:
    """In one function alone."""
    true = getattr(owner, name)

    def within(*given: Any) -> Any:
        with _parts():
            return true(*given)

    with mock.patch.object(owner, name, within):
        yield


@contextmanager
def _parts_in_spark() -> Iterator[None]:
    """In the Pythons that Spark starts: they find ``sitecustomize`` in a folder of this one."""
    paths = [str(HERE / "in_spark"), str(HERE.parents[2]), os.environ.get("PYTHONPATH", "")]
    with mock.patch.dict(
        os.environ, {PLACE: "parts", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    ):
        yield


def plant_here() -> None:
    """In a Python that Spark started."""
    if os.environ.get(PLACE) == "parts":
        Reader.plan = _part  # type: ignore[method-assign]


# --- the others ----------------------------------------------------------------------------


@contextmanager
def _rounded_down() -> Iterator[None]:
    def share(size: int, base: int, end: int, low: int, high: int) -> int:
        return size * (min(end, high) - max(base, low)) // max(1, end - base)

    def cut(fence: index.Fence, base: int, end: int) -> index.Fence:
        width, part = fence.end - fence.base, end - base
        return fence._replace(
            base=base,
            end=end,
            records=fence.records * part // width,
            bytes=fence.bytes * part // width,
        )

    with mock.patch.object(plan, "share", share), mock.patch.object(index, "_cut", cut):
        yield


@contextmanager
def _any_age() -> Iterator[None]:
    with mock.patch.object(chain, "MAX_AGE_SECONDS", 1e9):
        yield


@contextmanager
def _left_out() -> Iterator[None]:
    with mock.patch.object(core_lag, "starts_of", lambda group, spans: {}):
        yield


@contextmanager
def _begun_anew() -> Iterator[None]:
    """In a copy, where nobody divides the file."""

    def reachable(self: Any, old: Any, ends: Any, newest: Any) -> Any:
        return topic_table._Reachable(newest, self._replacement(old, ends, newest), True)

    with mock.patch.object(topic_table.TopicTable, "_reachable", reachable):
        yield


_SOURCE = "spark/source"
_by_place = partial(
    changed,
    Change(
        f"{_SOURCE}/LogScanBuilder.java",
        "new StructType(\n"
        "            Arrays.stream(required.fieldNames()).map(schema::apply)"
        ".toArray(StructField[]::new));",
        "required;",
    ),
    Change(
        f"{_SOURCE}/HeadersVector.java",
        "Arrays.stream(type.fieldNames()).map(name -> leaf(name, column)).toArray(Leaf[]::new)",
        'new Leaf[] {leaf("key", column), leaf("value", column)}',
    ),
)
_in_a_zone = partial(
    changed,
    Change(
        f"{_SOURCE}/Narrowed.java",
        "Math.floorDiv(DateTimeUtils.fromJavaTimestamp(time), 1000L)",
        "time.getTime()",
    ),
    Change(f"{_SOURCE}/Narrowed.java", "millis < REBASED ? SLACK : 0", "millis < REBASED ? 0 : 0"),
)
PLANTED = {
    "a part of a plan is taken for all of it": Bug(_parts),
    "the lag is counted in a part of a plan": Bug(partial(_parts_within, lag, "_records")),
    "a page is made of a part of a plan": Bug(
        partial(_parts_within, records._Gathering, "_stretch")
    ),
    "an estimate is rounded down": Bug(_rounded_down),
    "a state of any age is read by": Bug(_any_age),
    "who has committed nothing is left out": Bug(_left_out),
    "a copy's table begins anew at a file that is cut": Bug(_begun_anew),
    "Spark reads a part of a plan": Bug(_parts_in_spark, beside=True),
    "a part of a column is taken for the whole": Bug(_by_place, beside=True),
    "times are read in the zone of the JVM": Bug(_in_a_zone, beside=True),
}
