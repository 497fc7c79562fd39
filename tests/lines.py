"""Runs of the stories beside the default one: ``python -m tests.lines 4.0 4.1 4.3 no-javac``.

Each line of Spark has a virtual environment under ``.cache/`` with its PySpark alone; all other
packages are those of ``.venv``. It builds the line's jar for Spark's JVM, and runs the tests that
are marked ``every_line``: those of source and sink with tasks in the JVM, and some (``both_paths``)
in Python too; without a ``javac``, all in Python. ``no-javac`` runs the default line in a copy of
the checkout that has no jar, on a Java without a ``javac``.

Several runs go side by side, each in one process with one session, and each is printed when it has
ended. With ``--all`` one line runs all tests. With ``--jar``, for a release, it builds the jars and
no more, and it is an error if one can't be built.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache"
PYSPARK = {"4.0": "4.0.5", "4.1": "4.1.4", "4.2": "4.2.0", "4.3": "4.3.0"}
"""The releases that are tested; of the default line it is the one in constraints.txt."""
NO_JAVAC = "no-javac"
SHARED = """import os, site, sys; site.addsitedir(os.path.normpath(os.path.join(\
sys.prefix, "..", "..", ".venv", "lib", "python%d.%d" % sys.version_info[:2], "site-packages")))
"""
STORIES = ("tests/spark_plugin", "tests/test_package.py", "-p", "no:cacheprovider")
IN_JVM = "every_line and not in_python or every_line(both_paths=True)"
IN_PYTHON = "every_line"
WITHOUT_JAR = "every_line(both_paths=True) and in_python or every_line(without_jar=True)"
AT_ONCE = 3
"""A session uses less than one core of two on average: it waits for files, and for batches."""


class Run(NamedTuple):
    """What one run is called, and the command that runs it."""

    title: str
    command: list[str]
    folder: Path = ROOT
    environment: Mapping[str, str] = {}  # noqa: RUF012 - never changed


def python_of(line: str) -> Path:
    """The Python of a line, whose PySpark is installed if it is not."""
    home = CACHE / f"spark-{line}"
    python, ready = home / "bin" / "python", home / "ready"
    version = PYSPARK[line]
    release = f"{version} python{sys.version_info[0]}.{sys.version_info[1]}"
    if ready.exists() and ready.read_text() == release:
        return python
    print(f"Installing PySpark {version} into {home}; this downloads some 450 MB.", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", home], check=True)
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
    # Its requirements are among the packages that are shared.
    subprocess.run(
        [*pip, "--disable-pip-version-check", "--no-deps", f"pyspark=={version}"], check=True
    )
    [packages] = home.glob("lib/python*/site-packages")
    (packages / "shared.pth").write_text(SHARED)
    ready.write_text(release)
    return python


def build_jar(line: str) -> bool:
    """Build the line's jar against its own PySpark; whether there is one now."""
    build = ROOT / "spark_plugin" / "java" / "build.py"
    return subprocess.run([python_of(line), build, "--needed"], check=False).returncode == 0


def on_line(line: str, arguments: list[str], whole: bool = False) -> Run:
    """The stories, or all tests, on a line of Spark."""
    python = python_of(line)
    has_jar = build_jar(line)
    chosen = () if whole else (*STORIES, "-m", IN_JVM if has_jar else IN_PYTHON)
    return Run(
        f"Spark {PYSPARK[line]}",
        [str(python), "-m", "pytest", *chosen, *arguments],
        environment={"PYSPARK_PYTHON": str(python)},
    )


def without_javac(arguments: list[str]) -> Run:
    """A few stories where no jar can be built: the checkout as it is cloned, and a Java alone."""
    home = CACHE / NO_JAVAC
    shutil.rmtree(home, ignore_errors=True)
    (home / "java" / "bin").mkdir(parents=True)
    java = shutil.which("java", path=_java_path())
    if java is None:
        raise SystemExit("There is no Java. Install a Java 17, or set JAVA_HOME.")
    (home / "java" / "bin" / "java").symlink_to(Path(java).resolve())
    left_out = shutil.ignore_patterns(".git", ".venv", ".cache", "jars", "build", "dist", ".*cache")
    shutil.copytree(ROOT, home / "checkout", ignore=left_out)
    (home / "checkout" / ".cache").symlink_to(CACHE)
    tree = home / "checkout"
    return Run(
        "The default Spark, without a javac",
        [sys.executable, "-m", "pytest", *STORIES, "-m", WITHOUT_JAR, *arguments],
        folder=tree,
        environment={
            "JAVA_HOME": str(home / "java"),
            "PYTHONPATH": f"{tree}{os.pathsep}{tree / 'spark_plugin'}",
        },
    )


def _java_path() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin" if home else None


def run(one: Run, shown: bool = False) -> tuple[Run, int, str]:
    """Run one; its status, and what it printed, unless that is shown as it comes."""
    done = subprocess.run(
        one.command,
        cwd=one.folder,
        env={**os.environ, **one.environment},
        check=False,
        text=True,
        stdout=None if shown else subprocess.PIPE,
        stderr=None if shown else subprocess.STDOUT,
    )
    return one, done.returncode, done.stdout or ""


def run_all(runs: list[Run]) -> list[str]:
    """Run them side by side, and print each when it has ended; those that failed."""
    if len(runs) == 1:
        return [one.title for one in runs if run(one, shown=True)[1]]
    failed = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done in [pool.submit(run, one) for one in runs]:
            one, status, output = done.result()
            print(f"\n{one.title}:\n{output}", end="", flush=True)
            if status:
                failed.append(one.title)
    return failed


def main(arguments: list[str]) -> int:
    names = [name for name in arguments if name in PYSPARK or name == NO_JAVAC]
    rest = arguments[len(names) :]
    if not names:
        print(f"Name what to run on: {', '.join([*PYSPARK, NO_JAVAC])}.")
        return 2
    if rest == ["--jar"]:
        return 0 if all(build_jar(line) for line in names) else 1
    if rest[:1] == ["--all"]:
        runs = [on_line(line, rest[1:], whole=True) for line in names]
    else:
        runs = [without_javac(rest) if name == NO_JAVAC else on_line(name, rest) for name in names]
    failed = run_all(runs)
    if failed:
        print(f"Tests failed: {', '.join(failed)}.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
