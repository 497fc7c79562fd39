"""A JVM with the decoder of segments and without Spark, asked line by line."""

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
        "snappy-java")  # fmt: skip
SOURCE = Path(__file__).with_name("Decode.java")


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
    spark = Path(pyspark.__file__).parent / "jars"
    path = [jar, *(one for name in JARS for one in spark.glob(f"{name}-[0-9]*.jar")), folder]
    joined = os.pathsep.join(map(str, path))
    javac = shutil.which("javac")
    assert javac is not None
    subprocess.run([javac, "-cp", joined, "-d", folder, SOURCE], check=True)
    program = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", joined, "Decode"]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Decoder(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(30)
