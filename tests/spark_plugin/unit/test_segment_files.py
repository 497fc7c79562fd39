"""The JVM's tasks put segments where the root's folders are, and nowhere else: no link is followed,
whenever it comes. Without Spark."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark_plugin.java.decoder import program

pytestmark = pytest.mark.skipif(shutil.which("javac") is None, reason="there is no javac")
LINK = "is a symbolic link, and none is followed under the root"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    (tmp_path / "outside" / "partition=0").mkdir(parents=True)
    (tmp_path / "root" / "_offsetlog.json").write_text("{}")
    return tmp_path / "root"


@pytest.fixture(scope="module")
def jvm(jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    classes = tmp_path_factory.mktemp("classes")
    with program(jar, classes, "offsetlog.spark.sink.Write") as process:
        yield lambda line: asked(process, line)


@pytest.fixture
def task(jvm: Any, root: Path) -> Any:
    assert jvm(f"task {root}") == "done"
    return jvm


def asked(process: subprocess.Popen[str], line: str) -> str:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return process.stdout.readline().rstrip("\n")


def files(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]


def move_away(root: Path, name: str, instead: str) -> None:
    path = root / name
    path.rename(root.parent / f"aside-{len(list(root.parent.iterdir()))}")
    if instead == "a link":
        outside = root.parent / "outside"
        path.symlink_to(outside / path.name if path.name != "t" else outside)
    elif instead == "a folder":
        (path / "partition=0" if name == "t" else path).mkdir(parents=True)
    elif instead == "a pipe":
        os.mkfifo(path)


def test_segments_get_their_names(task: Any, root: Path) -> None:
    for partition in (0, 1, 0):
        assert task(f"open {partition}") == task("name") == "done"
    assert sorted(path.parent.name for path in root.rglob("*.parquet")) == [
        "partition=0", "partition=0", "partition=1",
    ]  # fmt: skip
    assert task("open 0") == task("close") == "done"
    assert len(files(root)) == 4


@pytest.mark.parametrize("instead", ["a link", "a folder", "a pipe", "nothing"])
@pytest.mark.parametrize("name", ["t/partition=0", "t"])
@pytest.mark.parametrize("when", ["between segments", "before the name"])
def test_what_comes_in_a_folders_place(
    task: Any, root: Path, when: str, name: str, instead: str
) -> None:
    assert task("open 0") == task("name") == "done"
    if when == "before the name":
        assert task("open 0") == "done"
    move_away(root, name, instead)
    answer = task("name") if when == "before the name" else task("open 0")
    if instead == "a link":
        assert LINK in answer and "offsetlog.errors.StorageError: '" in answer
    elif instead == "a pipe":
        assert "Not a directory" in answer
    elif when == "before the name":
        assert "No such file or directory" in answer
    else:
        # As any task that comes first it makes the folders that it needs.
        assert answer == task("name") == "done"
    assert task("close") == "done"
    assert files(root.parent / "outside") == []
