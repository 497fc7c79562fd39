"""The jar for Spark's JVM that is built where it is missing: of small sources, for small Sparks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import offsetlog
from offsetlog import spark_jar
from offsetlog.spark_jar import ready_jar
from tests.test_environment import put_jar

needs_javac = pytest.mark.skipif(shutil.which("javac") is None, reason="there is no javac")


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An installed package without jars, a Spark 4.2.0, and a cache folder that is not there."""
    package = tmp_path / "site" / "pyspark_offsetlog"
    (package / "jars").mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('it is only looked for')")
    for folder, name in (("offsetlog", "Same"), *((f"lines/{n}", "Line") for n in spark_jar.LINES)):
        (package / "java" / folder).mkdir(parents=True)
        source = package / "java" / folder / f"{name}.java"
        source.write_text(f"package offsetlog; public final class {name} {{}}\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delitem(sys.modules, "pyspark_offsetlog", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    install_spark(monkeypatch, tmp_path, "4.2.0")
    return tmp_path


def install_spark(monkeypatch: pytest.MonkeyPatch, place: Path, version: str) -> None:
    jars = place / f"spark-{version}" / "jars"
    jars.mkdir(parents=True)
    with zipfile.ZipFile(jars / f"spark-core_2.13-{version}.jar", "w") as jar:
        jar.writestr("nothing", "")
    monkeypatch.setenv("SPARK_HOME", str(jars.parent))


def javac(monkeypatch: pytest.MonkeyPatch, place: Path, text: str) -> str:
    """A ``javac`` of our own."""
    program = place / "jdk" / "bin" / "javac"
    program.parent.mkdir(parents=True)
    program.write_text(text)
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(place / "jdk"))
    return str(program)


def no_javac(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", os.devnull)


def why(version: str = "4.2.0") -> str:
    found = ready_jar(version)
    assert found.path is None
    return found.reason


@needs_javac
def test_it_is_built_once_into_the_users_cache(
    monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    before = os.umask(0o002)  # As where each user has a group of their own.
    try:
        path = Path(ready_jar("4.2.0").path or "")
    finally:
        os.umask(before)
    assert path.parent == place / "cache" / "offsetlog" / "jars"
    named = rf"offsetlog-spark-{re.escape(offsetlog.__version__)}-4\.2\.0-[0-9a-f]{{16}}\.jar"
    assert re.fullmatch(named, path.name)
    with zipfile.ZipFile(path) as jar:
        assert {"offsetlog/Same.class", "offsetlog/Line.class"} <= set(jar.namelist())
    assert path.parent.stat().st_mode & 0o777 == 0o700
    no_javac(monkeypatch)
    assert ready_jar("4.2.0").path == spark_jar.spark_jar("4.2.0").path == str(path)
    [source] = place.glob("site/pyspark_offsetlog/java/offsetlog/*.java")
    source.write_text(source.read_text() + "// of another version\n")
    assert "there is no javac" in why()


@needs_javac
def test_a_vendors_spark_gets_one_of_its_own(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    shipped = put_jar(
        place / "site" / "pyspark_offsetlog" / "jars" / "x.jar", offsetlog.__version__, "4.2 4.3"
    )
    assert ready_jar("4.2.0").path == shipped
    install_spark(monkeypatch, place, "4.2.1-amzn-0")
    with monkeypatch.context() as without:
        no_javac(without)
        assert ready_jar("4.2.1").path == shipped
    path = ready_jar("4.2.1").path
    assert path is not None and "-4.2.1-amzn-0-" in path
    assert spark_jar.spark_jar("4.2.1").path == path


def test_another_spark_than_the_one_here(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    no_javac(monkeypatch)
    assert "the jars of Spark 4.1.4 are not here" in why("4.1.4")
    install_spark(monkeypatch, place, "5.0.0")
    assert "no jar for Spark 5.0" in why("5.0.0")


@needs_javac
@pytest.mark.parametrize("home", ["/dev/null", "a file"])
def test_a_home_that_can_not_be_written_gets_a_sentence(
    monkeypatch: pytest.MonkeyPatch, place: Path, home: str
) -> None:
    (place / "a file").touch()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(place / home))
    assert re.search(
        r"offsetlog/jars can't be written \(Not a directory\); set XDG_CACHE_HOME to a folder",
        why(),
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("#!/bin/sh\necho 'error: release version 17 not supported' >&2\nexit 2\n",
         "failed: error: release version 17 not supported; a JDK 17 or newer is needed"),
        ("#!/bin/sh\nexit 3\n", "failed: it ended with status 3"),
        ("no program", "does not run: Exec format error"),
    ],
)  # fmt: skip
def test_a_javac_that_is_broken_gets_a_sentence(
    monkeypatch: pytest.MonkeyPatch, place: Path, text: str, told: str
) -> None:
    program = javac(monkeypatch, place, text)
    assert f"{program} {told}" in why()
    assert not list((place / "cache" / "offsetlog" / "jars").iterdir())


def test_a_folder_that_others_may_write_is_not_used(
    monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    javac(monkeypatch, place, "#!/bin/sh\nexit 0\n")
    built = Path(ready_jar("4.2.0").path or "")
    assert built.exists()
    built.parent.chmod(0o777)
    assert spark_jar.spark_jar("4.2.0").path is None
    assert f"others may write {built.parent}" in why()


@needs_javac
def test_two_processes_may_build_at_once(place: Path) -> None:
    program = "from offsetlog.spark_jar import ready_jar; print(*ready_jar('4.2.0'))"
    environment = {**os.environ, "PYTHONPATH": f"{place / 'site'}"}

    def build(_: int) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True, text=True, check=True, env=environment,
        )  # fmt: skip
        return done.stdout.split()[0]

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(build, range(2))
    assert first == second
    assert [str(path) for path in Path(first).parent.iterdir()] == [first]
    with zipfile.ZipFile(first) as jar:
        assert jar.testzip() is None
