"""A JVM with the decoder of segments, or what names them, and without Spark, asked line by line."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyspark

JARS = ("jackson-core", "jackson-databind", "jackson-annotations", "zstd-jni", "lz4-java",
        "snappy-java", "spark-unsafe_2.13")  # fmt: skip
HERE = Path(__file__).parent


class Answer(NamedTuple):
    rows: list[str]
    """Each with its offset, and what of its columns was asked for."""
    end: str
    """``end``, or why the rest is unreadable."""
    reached: int


class Decoder:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, *words: object) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().rstrip("\n")

    def rows(self, path: Path, columns: tuple[str, ...], *numbers: object) -> Answer:
        """Numbers: start, end, base, end, records, size, length of the foot, its sum."""
        rows = []
        line = self.ask("rows", path, ",".join(columns), *numbers)
        while line.startswith("row "):
            rows.append(line[4:])
            assert self._process.stdout is not None
            line = self._process.stdout.readline().rstrip("\n")
        kind, _, rest = line.partition(" ")
        assert kind in ("end", "unreadable"), line
        reached, _, why = rest.partition(" ")
        return Answer(rows, why or "end", int(reached))


@contextmanager
def decoder(jar: Path, folder: Path) -> Iterator[Decoder]:
    with program(jar, folder, "Decode") as process:
        yield Decoder(process)


@contextmanager
def program(jar: Path, folder: Path, name: str) -> Iterator[subprocess.Popen[str]]:
    """A program of this folder, which reads lines and writes lines."""
    spark = Path(pyspark.__file__).parent / "jars"
    path = [jar, *(one for name in JARS for one in spark.glob(f"{name}-[0-9]*.jar")), folder]
    joined = os.pathsep.join(map(str, path))
    javac = shutil.which("javac")
    assert javac is not None
    source = HERE / f"{name.rpartition('.')[2]}.java"
    subprocess.run([javac, "-cp", joined, "-d", folder, source], check=True)
    command = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", joined, name]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(30)
