"""The package as people install it: a wheel, an sdist and a development install, each in a fresh
virtual environment that borrows only what offsetlog depends on from this one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")
LIST = """
import pkgutil
print([m.name for m in pkgutil.iter_modules() if m.name in ("offsetlog", "pyspark_offsetlog")])
import offsetlog, pyspark_offsetlog
print(offsetlog.__file__, pyspark_offsetlog.__file__)
"""
SPARK = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
written = spark.range(3).selectExpr("CAST(id AS STRING) value").write.format("offsetlog")
written.option("topic", "t").option("createTopicPartitions", 1).mode("append").save(sys.argv[1])
read = spark.read.format("offsetlog").option("subscribe", "t").load(sys.argv[1])
print("rows:", sorted(row.value.decode() for row in read.collect()))
spark.stop()
"""


def run(program: Path | str, *arguments: object, **more: str) -> str:
    # Not in the checkout's folder, nor with its paths: what is found is what was installed.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYSPARK"))}
    done = subprocess.run(
        [str(program), *map(str, arguments)], capture_output=True, text=True, timeout=300,
        check=False, cwd="/", env={**environment, **more},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def fresh(folder: Path) -> Path:
    """The Python of a new virtual environment in which offsetlog's dependencies are found."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    [site] = folder.glob("lib/python*/site-packages")
    borrowed = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    # Named after the packages that a .pth of an install holds, so that those come first.
    (site / "zz_borrowed.pth").write_text("".join(f"{path}\n" for path in borrowed))
    return python


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout's files, where building leaves nothing in the checkout."""
    folder = tmp_path_factory.mktemp("source") / "offsetlog"
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    for name in names:
        if (CHECKOUT / name).is_file() and not name.startswith(("tests/", "bench/", "notebooks/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def dist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, and the wheel that is built from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    hooks = "import sys, offsetlog_build; print(offsetlog_build.build_sdist(sys.argv[1]))"
    name = subprocess.run(
        [sys.executable, "-c", hooks, str(folder)], cwd=source, capture_output=True, text=True,
        check=True, env={**os.environ, "PYTHONPATH": str(source / "build_backend")},
    ).stdout.split()[-1]  # fmt: skip
    run(sys.executable, *PIP, "wheel", "--no-deps", "--no-build-isolation",
        "--wheel-dir", folder, folder / name)  # fmt: skip
    return folder


def modules(folder: Path, prefix: str = "") -> set[str]:
    return {
        f"{prefix}{path.relative_to(folder).as_posix()}"
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def of_the_source(source: Path) -> set[str]:
    plugin = source / "spark_plugin" / "pyspark_offsetlog"
    return modules(source / "offsetlog", "offsetlog/") | modules(plugin, "pyspark_offsetlog/")


def test_the_wheel_holds_every_file_of_both_packages_and_no_other(dist: Path, source: Path) -> None:
    [wheel] = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        names = {name for name in files.namelist() if ".dist-info/" not in name}
    assert names == of_the_source(source)


def test_the_sdist_holds_what_building_needs(dist: Path) -> None:
    [sdist] = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert {
        "setup.py",
        "setup.cfg",
        "pyproject.toml",
        "LICENSE",
        "README.md",
        "build_backend/offsetlog_build.py",
        "offsetlog/format/SPEC.md",
        "spark_plugin/pyspark_offsetlog/datasource.py",
    } <= names


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_spark_finds_the_source_by_name(
    kind: str, dist: Path, source: Path, tmp_path: Path
) -> None:
    python = fresh(tmp_path / "venv")
    [wheel] = dist.glob("*.whl")
    given = [wheel] if kind == "wheel" else ["--no-build-isolation", "--editable", source]
    run(python, *PIP, "install", "--no-deps", "--force-reinstall", *given)
    listed, files = run(python, "-c", LIST).splitlines()
    assert listed == "['offsetlog', 'pyspark_offsetlog']"
    home = source if kind == "editable" else tmp_path / "venv"
    assert all(Path(file).is_relative_to(home) for file in files.split()), files
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    assert "rows: ['0', '1', '2']" in run(python, "-c", SPARK, tmp_path / "log", PATH=path)
