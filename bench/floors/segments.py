"""The floor of our source in Spark: a bare Java program that reads the very segments, checks every
sum, decompresses and decodes, with as many threads as Spark has cores (``Segments.java``).

It uses the classes of the jar that Spark's JVM uses, so it needs the jar, and ``javac``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from bench.peers.process import PeerUnavailableError
from offsetlog.spark_jar import spark_jar

SOURCE = Path(__file__).with_name("Segments.java")
COLUMNS = ("key", "value", "timestamp")
"""Those of the seven that are stored."""


class SegmentFloor:
    """The program, with the segments of a topic."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def add(self, url: str, topic: str) -> None:
        """All segments of a topic on this machine; all its rows must lie in segments."""
        import offsetlog
        from offsetlog.format.names import segment_of, topic_folder

        root = url.removeprefix("file://")
        with offsetlog.open(url) as log:
            open_topic = log.open_topic(topic)
            state = open_topic.state()
            for part in range(len(state.parts)):
                for piece in open_topic.reader.plan(part, state.start(part), state.end(part)):
                    extent = piece.extent
                    if extent.segment is None:
                        raise RuntimeError(f"rows of partition {part} of {topic} lie in an entry")
                    ref = extent.segment
                    path = f"{root}/{segment_of(topic_folder(topic), extent)}"
                    self._say(
                        f"segment {extent.base} {extent.end} {extent.records} {ref.size} "
                        f"{ref.footer_bytes} {ref.footer_xxh3} {path}"
                    )

    def rows_a_second(self, rows: int, *columns: str) -> float:
        """Of one pass over all segments."""
        self._say(f"pass {','.join(columns or COLUMNS)}")
        assert self._process.stdout is not None
        answer = self._process.stdout.readline().split()
        if len(answer) != 2 or answer[0] != str(rows):
            raise RuntimeError(f"the bare program read {' '.join(answer)}; there are {rows} rows")
        return rows / (int(answer[1]) / 1e9)

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


@contextmanager
def segment_floor(threads: int) -> Iterator[SegmentFloor]:
    """The program for the length of a block."""
    jar = spark_jar(pyspark.__version__)
    javac = shutil.which("javac")
    if jar.path is None or javac is None:
        raise PeerUnavailableError(f"the bare Java program needs javac and the jar. {jar.reason}")
    with tempfile.TemporaryDirectory() as classes:
        path = os.pathsep.join([jar.path, f"{Path(pyspark.__file__).parent}/jars/*", classes])
        subprocess.run([javac, "-cp", path, "-d", classes, SOURCE], check=True)
        command = ["java", "-Xmx1g", "-cp", path, "Segments", str(threads)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                yield SegmentFloor(process)
            finally:
                assert process.stdin is not None
                process.stdin.close()
                process.wait(30)
