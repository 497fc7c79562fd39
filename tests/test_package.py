"""The package as people install it: a wheel, an sdist and a development install, each in a fresh
virtual environment that borrows only what offsetlog depends on from this one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pyspark
import pytest
import yaml

from offsetlog.environment import SPARK_LINES, spark_line
from tests.pages import PAGES, ROOT, blocks, moved

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
USER = """
from typing import assert_type

import offsetlog

with offsetlog.open("/data/log") as log, log.producer(linger_ms=5) as producer:
    assert_type(log, offsetlog.Log)
    sent = producer.send("orders", value=b"3 apples", headers=[("via", b"web")]).result()
    assert_type(sent, offsetlog.RecordMetadata)
    with log.consumer(group="billing", topics=["orders"]) as consumer:
        for record in consumer.poll(timeout=1.0):
            assert_type(record.value, bytes | None)
    assert_type(log.topic("orders").end_offsets(), dict[int, int])
    log.consumer(group="billing", auto_offset="earliest")
"""
ROOTS = """
import os
import pytest

roots = []

@pytest.mark.parametrize("again", [False, True])
def test_each_test_has_another_root(offsetlog_root, offsetlog_log, again):
    assert os.listdir(offsetlog_root) == []
    offsetlog_log.create_topic("orders", partitions=1)
    import offsetlog
    with offsetlog.open(offsetlog_root) as same:
        assert list(same.topics()) == ["orders"]
    roots.append((offsetlog_root, offsetlog_log))

def test_they_are_closed_and_not_the_same():
    import offsetlog
    assert len({root for root, log in roots}) == 2
    for root, log in roots:
        with pytest.raises(offsetlog.InvalidRequestError, match="closed"):
            log.topics()
"""
OTHER = """
import sys

def test_that_has_nothing_to_do_with_it():
    assert "offsetlog.pytest_plugin" in sys.modules
    heavy = {"pyarrow", "fsspec", "numpy", "pyspark", "pyspark_offsetlog", "click", "rich"}
    assert not heavy & set(sys.modules)
"""
SDIST = """
    CHANGELOG.md LICENSE MANIFEST.in PKG-INFO README.md pyproject.toml setup.cfg setup.py
    build_backend/offsetlog_build.py
    offsetlog.egg-info/PKG-INFO offsetlog.egg-info/SOURCES.txt
    offsetlog.egg-info/dependency_links.txt offsetlog.egg-info/entry_points.txt
    offsetlog.egg-info/requires.txt offsetlog.egg-info/top_level.txt
"""
WHEEL = "METADATA RECORD WHEEL entry_points.txt licenses/LICENSE top_level.txt"
EXTRAS = {
    "azure", "bench", "delta", "docs", "gcs", "lint", "page", "rest", "s3", "sftp",
    "smb", "spark", "test",
}  # fmt: skip


def run(program: Path | str, *arguments: object, **more: str) -> str:
    # Not in the checkout's folder, nor with its paths: what is found is what was installed.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PY", "SPARK"))}
    done = subprocess.run(
        [str(program), *map(str, arguments)], capture_output=True, text=True, timeout=300,
        check=False, cwd="/", env={**environment, **more},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def fresh(folder: Path, *install: object) -> Path:
    """The Python of a new virtual environment with what is installed there, which finds
    offsetlog's dependencies."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    [site] = folder.glob("lib/python*/site-packages")
    borrowed = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    # Named after the packages that a .pth of an install holds, so that those come first.
    (site / "zz_borrowed.pth").write_text("".join(f"{path}\n" for path in borrowed))
    pip = ("-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-deps")
    run(python, *pip, "--force-reinstall", *install)
    return python


def checkout(folder: Path) -> Path:
    """A copy of the checkout's files, so that building leaves nothing in the checkout. With the jar
    that was built, if there is a javac."""
    jars = "spark_plugin/pyspark_offsetlog/jars"
    subprocess.run([sys.executable, ROOT / "spark_plugin" / "java" / "build.py"], check=True)
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    names += [f"{jars}/{path.name}" for path in (ROOT / jars).glob("*.jar")]
    for name in names:
        if (ROOT / name).is_file() and not name.startswith("tests/golden/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    return folder


def built(source: Path, folder: Path, **more: str) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from the sdist."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, source, **more)
    [sdist], [wheel] = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkout(tmp_path_factory.mktemp("source") / "offsetlog")


@pytest.fixture(scope="module")
def dist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return built(source, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(dist: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel."""
    return fresh(tmp_path_factory.mktemp("wheel") / "venv", dist[1])


def of_the_source(source: Path) -> set[str]:
    folders = {"offsetlog": source, "pyspark_offsetlog": source / "spark_plugin"}
    return {
        path.relative_to(parent).as_posix()
        for name, parent in folders.items()
        for path in (parent / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_every_file_of_both_packages_and_no_other(
    dist: tuple[Path, Path], source: Path
) -> None:
    with zipfile.ZipFile(dist[1]) as wheel:
        names = wheel.namelist()
    about = {name for name in names if ".dist-info/" in name}
    java = source / "spark_plugin" / "java"
    sources = {
        f"pyspark_offsetlog/java/{path.relative_to(java).as_posix()}"
        for path in java.rglob("*.java")
    }
    assert sources and set(names) - about == of_the_source(source) | sources
    assert {name.partition(".dist-info/")[2] for name in about} == set(WHEEL.split())


def test_the_sdist_holds_what_building_needs_and_no_more(
    dist: tuple[Path, Path], source: Path
) -> None:
    with tarfile.open(dist[0]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    product = {
        f"spark_plugin/{name}" if name.startswith("pyspark") else name
        for name in of_the_source(source)
    }
    java = {
        path.relative_to(source).as_posix()
        for path in (source / "spark_plugin" / "java").rglob("*")
        if path.is_file()
    }
    assert names == product | java | set(SDIST.split())


@pytest.mark.skipif(shutil.which("javac") is None, reason="there is no javac")
def test_the_jar_is_in_the_wheel_and_built_as_the_same_bytes(
    dist: tuple[Path, Path], installed: Path, source: Path, tmp_path: Path
) -> None:
    """With those of other lines of Spark that were built here, of the same sources."""
    jars = {path for path in of_the_source(source) if path.endswith(".jar")}
    lines = {name: set(lines_of(source / "spark_plugin" / name)) for name in jars}
    assert set(lines) <= {f"pyspark_offsetlog/jars/offsetlog-spark-4.{n}.jar" for n in (0, 1, 2)}
    assert set().union(*lines.values()) <= set(SPARK_LINES)
    assert sum(map(len, lines.values())) == len(set().union(*lines.values()))
    path = run(installed.parent / "offsetlog", "doctor", "--spark-jar").strip()
    [name] = [name for name in jars if spark_line(pyspark.__version__) in lines[name]]
    assert path.startswith(str(installed.parents[1])) and path.endswith(name)
    elsewhere = checkout(tmp_path / "elsewhere")
    built = elsewhere / "spark_plugin" / name
    built.unlink()
    again = run(sys.executable, elsewhere / "spark_plugin" / "java" / "build.py", TZ="Asia/Tokyo")
    assert again.strip() == str(built)
    assert built.read_bytes() == Path(path).read_bytes()


@pytest.mark.skipif(shutil.which("javac") is None, reason="there is no javac")
def test_an_installed_wheel_without_jars_builds_the_same_one(
    dist: tuple[Path, Path], tmp_path: Path
) -> None:
    """As does one that is installed from a checkout by ``pip install .``, and a vendor's Spark."""
    program = fresh(tmp_path / "venv", dist[1]).parent / "offsetlog"
    shipped = Path(run(program, "jar").strip())
    expected = shipped.read_bytes()
    for path in shipped.parent.glob("*.jar"):
        path.unlink()
    built = Path(run(program, "jar", XDG_CACHE_HOME=str(tmp_path / "cache")).strip())
    assert built.parent == tmp_path / "cache" / "offsetlog" / "jars"
    assert built.read_bytes() == expected
    assert run(program, "jar", XDG_CACHE_HOME=str(tmp_path / "cache"), JAVA_HOME=os.devnull)


def lines_of(jar: Path) -> list[str]:
    with zipfile.ZipFile(jar) as files:
        manifest = files.read("META-INF/MANIFEST.MF").decode()
    return re.findall(r"Offsetlog-Spark-Lines: (.*)\r\n", manifest)[0].split()


def jars_of(spark: str, folder: Path) -> Path:
    """A folder that looks like the jars of a Spark."""
    folder.mkdir()
    for name in ("spark-core_2.13-{}.jar", "spark-core-extras_2.13-{}.jar", "scala-library.jar"):
        (folder / name.format(spark)).touch()
    return folder


def test_a_jar_is_built_for_the_line_that_the_given_jars_are_of(tmp_path: Path) -> None:
    elsewhere = checkout(tmp_path / "elsewhere")
    build = elsewhere / "spark_plugin" / "java" / "build.py"
    jars = elsewhere / "spark_plugin" / "pyspark_offsetlog" / "jars"
    jars.mkdir(exist_ok=True)

    def built(spark: str) -> str:
        return run(sys.executable, build, "--jars", jars_of(spark, tmp_path / spark)).strip()

    # It is there and of these sources, so it is not built again.
    ours = spark_line(pyspark.__version__)
    for present in jars.glob("*.jar"):
        if ours in lines_of(present):
            assert built(f"{ours}.9-vendor-1") == str(present)
    assert "made for Spark 4.0, 4.1, 4.2 and 4.3, and this is 5.0.1" in built("5.0.1")
    (tmp_path / "none").mkdir()
    with pytest.raises(AssertionError, match="does not hold the jars of one Spark"):
        run(sys.executable, build, "--needed", "--jars", tmp_path / "none")


def test_without_a_javac_there_is_no_jar_and_no_old_one(source: Path, tmp_path: Path) -> None:
    elsewhere = checkout(tmp_path / "elsewhere")
    build = elsewhere / "spark_plugin" / "java" / "build.py"
    jars = elsewhere / "spark_plugin" / "pyspark_offsetlog" / "jars"
    jars.mkdir(exist_ok=True)
    # Nor of a line that is not built now.
    (jars / "offsetlog-spark-4.0.jar").write_bytes(b"of other sources")
    [java] = elsewhere.glob("spark_plugin/java/offsetlog/spark/source/OffsetLogSource.java")
    java.write_text(java.read_text() + "// changed\n")
    assert "there is no javac" in run(sys.executable, build, JAVA_HOME=os.devnull)
    assert list(jars.glob("*.jar")) == []
    with pytest.raises(AssertionError, match="There is no jar for Spark's JVM: there is no javac"):
        run(sys.executable, build, "--needed", JAVA_HOME=os.devnull)


def test_two_builds_are_the_same_bytes(dist: tuple[Path, Path], tmp_path: Path) -> None:
    """Elsewhere, at another time, by a user with another umask, where somebody has built before."""
    source = checkout(tmp_path / "elsewhere")
    (source / "offsetlog.egg-info").mkdir()
    (source / "offsetlog.egg-info" / "SOURCES.txt").write_text("bench/readme.py\ndocs/spark.md\n")
    for path in [source, *source.rglob("*")]:
        path.chmod(0o700 if path.is_dir() else 0o600)
        os.utime(path, (1_700_000_000, 1_700_000_000))
    again = built(source, tmp_path / "dist", TZ="Asia/Tokyo")
    assert [path.name for path in again] == [path.name for path in dist]
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in dist]
    dated = built(source, tmp_path / "dated", SOURCE_DATE_EPOCH="1700000000")
    with zipfile.ZipFile(dated[1]) as wheel:
        assert {info.date_time[:3] for info in wheel.infolist()} == {(2023, 11, 14)}
    with tarfile.open(dated[0]) as sdist:
        assert {(info.mtime, info.uid, info.mode) for info in sdist} == {(1_700_000_000, 0, 0o644)}


def test_the_metadata(dist: tuple[Path, Path]) -> None:
    run(sys.executable, "-m", "twine", "check", "--strict", *dist)
    with zipfile.ZipFile(dist[1]) as wheel:
        [name] = [name for name in wheel.namelist() if name.endswith("/METADATA")]
        metadata = Parser().parsestr(wheel.read(name).decode())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert set(metadata.get_all("Provides-Extra", [])) == EXTRAS
    pages = [*PAGES, *(ROOT / "offsetlog").rglob("*.py"), *(ROOT / "conf").iterdir()]
    named = re.findall(
        r"(?:offsetlog|\.)\[([a-z0-9,]+)\]", "".join(page.read_text() for page in pages)
    )
    assert len(named) > 10 and {extra for names in named for extra in names.split(",")} <= EXTRAS
    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert not any("spark" in line for line in needed)


def test_the_version_is_written_once(dist: tuple[Path, Path], installed: Path) -> None:
    import offsetlog

    version = offsetlog.__version__
    assert [path.name for path in dist] == [
        f"offsetlog-{version}.tar.gz",
        f"offsetlog-{version}-py3-none-any.whl",
    ]
    told = "import importlib.metadata as m; print(m.version('offsetlog'))"
    assert run(installed, "-c", told).strip() == version
    assert run(installed.parent / "offsetlog", "--version").split()[-1] == version
    assert f"| package | {version} |" in (ROOT / "docs" / "versions.md").read_text()


def test_a_users_program_is_typed(installed: Path, tmp_path: Path) -> None:
    """mypy finds the types in the wheel, and with them the one mistake of the program."""
    program = tmp_path / "program.py"
    program.write_text(USER)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", installed,
         "--cache-dir", tmp_path / "cache", "--config-file", os.devnull, program],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300,
        env={k: v for k, v in os.environ.items() if k != "MYPYPATH"},
    )  # fmt: skip
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 1, done.stdout + done.stderr
    assert 'Unexpected keyword argument "auto_offset"' in errors[0]


def test_the_workflows_call_the_commands_of_a_checkout() -> None:
    workflows = {
        path.stem: yaml.safe_load(path.read_text())
        for path in (ROOT / ".github" / "workflows").glob("*.yml")
    }
    makefile = (ROOT / "Makefile").read_text()
    for workflow in workflows.values():
        assert workflow["permissions"] == {"contents": "read"}
        commands = re.findall(r"\bmake (\w+)", str(workflow["jobs"]))
        assert commands and all(f"\n{command}:" in makefile for command in commands)
    jobs = workflows["release"]["jobs"]
    assert jobs["publish"]["needs"] == ["build", "test"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in str(jobs)


def test_nobody_can_change_what_a_release_runs() -> None:
    """Actions by their commits, and an environment for building that has nothing else in it."""
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = path.read_text()
        used = re.findall(r"uses: *(\S+)(.*)", text)
        assert used and len(used) == text.count("uses:")
        for action, comment in used:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), action
            assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), f"{action}: of which release?"
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    assert {name for name, job in jobs.items() if "permissions" in job} == {"publish"}
    steps = [step["uses"].partition("@")[0] for step in jobs["publish"]["steps"]]
    assert steps == ["actions/download-artifact", "pypa/gh-action-pypi-publish"]
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^dist: \$\(VENV\)/\.dist$", makefile, re.M)
    [needs] = re.findall(r"^\$\(VENV\)/\.dist:.*\n(?:\t.*\n)*?\t\$\(PIP\) (.*)", makefile, re.M)
    assert needs == "-c constraints.txt -e '.[spark]' build setuptools twine"
    pinned = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line
    )
    assert {"build", "setuptools", "twine", "pyspark"} <= pinned.keys()


def example(folder: Path) -> Path:
    """The files of docs/testing.md, in a folder of a user's."""
    files = {text.split()[1]: text for text in blocks("python", ROOT / "docs" / "testing.md")}
    assert list(files) == ["billing.py", "test_billing.py", "test_worker.py"]
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def run_pytest(python: Path, folder: Path, *arguments: object) -> str:
    """What pytest says of the tests in a user's folder."""
    own = (f"--rootdir={folder}", f"--basetemp={folder / 'roots'}", "-p", "no:cacheprovider")
    return spark(python, "-m", "pytest", "-c", os.devnull, *own, *arguments)


def test_the_fixtures_come_with_the_package(installed: Path, tmp_path: Path) -> None:
    folder = example(tmp_path)
    (folder / "test_roots.py").write_text(ROOTS)
    out = run_pytest(installed, folder, folder / "test_worker.py", folder / "test_roots.py")
    assert "4 passed" in out and "warning" not in out


def test_who_does_not_use_them_pays_nothing(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(OTHER)
    assert "1 passed" in run_pytest(installed, tmp_path, tmp_path)
    assert "offsetlog_root" in run_pytest(installed, tmp_path, "--fixtures", tmp_path)
    without = run_pytest(installed, tmp_path, "-p", "no:offsetlog", "--fixtures", tmp_path)
    assert "offsetlog_root" not in without


@pytest.mark.spark
def test_a_users_job_is_tested_with_no_broker(installed: Path, tmp_path: Path) -> None:
    folder = example(tmp_path)
    out = run_pytest(installed, folder, folder / "test_billing.py")
    assert "2 passed" in out


def found(python: Path) -> list[Path]:
    """Where the packages lie that Spark can find."""
    listed, files = run(python, "-c", LIST).splitlines()
    assert listed == "['offsetlog', 'pyspark_offsetlog']"
    return [Path(file) for file in files.split()]


def spark(python: Path, *arguments: object) -> str:
    return run(python, *arguments, PATH=f"{python.parent}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.spark
@pytest.mark.every_line
def test_the_readmes_spark_program_runs_with_the_wheel(installed: Path, tmp_path: Path) -> None:
    """As it stands, in a file of its own."""
    [program] = [text for text in blocks("python", ROOT / "README.md") if "readStream" in text]
    file = tmp_path / "program.py"
    file.write_text(moved(program, tmp_path))
    # Of the line on which the test runs.
    version = "import pyspark; print(pyspark.__version__)"
    assert run(installed, "-c", version) == run(sys.executable, "-c", version)
    assert "batch 0: 1000" in spark(installed, file)


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_spark_finds_the_source_by_name(
    kind: str, installed: Path, source: Path, tmp_path: Path
) -> None:
    python, home = installed, installed.parents[1]
    if kind == "editable":
        python, home = (
            fresh(tmp_path / "venv", "--no-build-isolation", "--editable", source),
            source,
        )
    assert all(file.is_relative_to(home) for file in found(python)), found(python)
    assert "rows: ['0', '1', '2']" in spark(python, "-c", SPARK, tmp_path / "log")


def test_no_advice_needs_a_release() -> None:
    """Nothing is on PyPI yet: what an error tells to install is a package that is there."""
    named = [
        f"{path}: {line}"
        for folder in ("offsetlog", "spark_plugin/pyspark_offsetlog")
        for path in (ROOT / folder).rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"pip install ['\"]?offsetlog", line)
    ]
    assert named == []
