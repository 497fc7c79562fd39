"""A client of Hadoop's for S3 that reads from a folder, and is ordered to fail: see the Java."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pyspark

SOURCE = Path(__file__).with_name("FolderStore.java")


class Asked(NamedTuple):
    """A range that was asked for."""

    path: str
    start: int
    length: int


class FolderStore:
    """Its buckets are folders in ``place``."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def settings(self) -> dict[str, str]:
        return {"fs.s3a.impl": "FolderStore", "folder.store": str(self.place)}

    def file(self, url: str, path: str) -> Path:
        """The file of a path in the bucket of a URL."""
        bucket = url.partition("://")[2].partition("/")[0]
        return self.place / bucket / path.removeprefix("/")

    def order(self, what: str = "") -> None:
        """What becomes of all that is asked from now on: ``refuse``, ``wait MS``, or nothing."""
        (self.place / "order").write_text(what)

    def forget(self) -> None:
        """What was asked, and the order."""
        self.order()
        (self.place / "asked").write_text("")

    def asked(self) -> list[Asked]:
        """Since it was forgotten. What is no range, nobody may ask for."""
        lines = [line.rsplit(" ", 2) for line in (self.place / "asked").read_text().splitlines()]
        assert all(len(line) == 3 for line in lines), lines
        return [Asked(path, int(start), int(length)) for path, start, length in lines]


def jar(place: Path) -> Path:
    """With the store alone."""
    spark = Path(pyspark.__file__).parent / "jars"
    [hadoop] = spark.glob("hadoop-client-api-*.jar")
    javac = shutil.which("javac")
    assert javac is not None
    classes = place / "classes"
    subprocess.run([javac, "-cp", str(hadoop), "-d", classes, SOURCE], check=True)
    return Path(shutil.make_archive(str(place / "folder-store"), "zip", classes)).rename(
        place / "folder-store.jar"
    )


def download(options: dict[str, Any], url: str, place: Path) -> None:
    """All files below a URL of S3, into the folder of its bucket."""
    import s3fs

    fs = s3fs.S3FileSystem(**options, skip_instance_cache=True)
    for key in fs.find(url):
        target = place / key
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(fs.cat_file(key))
