"""This machine: its Java and Pythons, and whether ``format("offsetlog")`` would work on it.

Invariants:

1. Spark is not started. The Python that its workers would run is started, and reports its version
   and what it finds.
2. Each failed check says what to do. None of them makes a filesystem unfit.
"""

from __future__ import annotations

import functools
import glob
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Any, NamedTuple

from offsetlog.errors import InvalidRequestError
from offsetlog.spark_jar import COMMAND as JAR_COMMAND
from offsetlog.spark_jar import spark_jar
from offsetlog.spark_jar import spark_line as spark_line

MISSING = "not installed"
SLOWER = "slower"
SPARK_LINES = ("4.0", "4.1", "4.2", "4.3")
"""The lines of Spark that the plugin is made for."""
DELTA_RELEASES = {
    "4.0": ("4.0",),
    "4.1": ("4.0", "4.1"),
    "4.2": ("4.0", "4.1"),
    "4.3": ("4.0", "4.1"),
    "4.4": ("4.0", "4.1", "4.2"),
}
"""Releases of Delta, and the lines of Spark that each has a jar for."""
NEWEST_DELTA = "4.4.0"
"""The version of the jar where no package of Delta says which."""
NEWEST_WITH_DELTA = DELTA_RELEASES[NEWEST_DELTA[:3]][-1]
INSTALL_SPARK = f'pip install "pyspark=={NEWEST_WITH_DELTA}.*"'
JAVA = 17
FIX = (
    f"set PYSPARK_PYTHON={sys.executable}, or make the session with offsetlog.spark.session(), "
    "which does so"
)
_REPORT = """
import json, pkgutil, sys
report = {"executable": sys.executable, "python": "%d.%d" % sys.version_info[:2]}
report["prefix"] = sys.prefix
try:
    import offsetlog
    report["offsetlog"] = offsetlog.__version__
    import fsspec, numpy, pyarrow, xxhash
    import pyspark_offsetlog
    report["source"] = pyspark_offsetlog.DefaultSource.name()
except Exception as error:
    report["error"] = str(error)
report["found"] = any(module.name == "pyspark_offsetlog" for module in pkgutil.iter_modules())
print(json.dumps(report))
"""


class SparkCheck(NamedTuple):
    name: str
    passed: bool
    detail: str
    word: str = ""

    @property
    def result(self) -> str:
        """In a word."""
        return (self.word or "ok") if self.passed else "WRONG"


def spark_checks(java: str) -> list[SparkCheck]:
    """Empty if Spark is not installed: then nobody here needs it."""
    version = version_of("pyspark")
    if version is None:
        return []
    checks = [_java(java), _pyspark(version)]
    delta = version_of("delta-spark")
    if delta is not None:
        checks.append(_delta(delta, spark_line(version)))
    return [*checks, _reader(version), *_pythons()]


def version_of(package: str) -> str | None:
    """The installed version of a package; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _java(version: str) -> SparkCheck:
    number = re.match(r"(?:1\.)?([0-9]{1,4})", version)
    if number is None:
        return SparkCheck("java", False, f"{version}: install Java {JAVA}, or set JAVA_HOME to one")
    if int(number[1]) < JAVA:
        return SparkCheck(
            "java",
            False,
            f"{version} is too old: Spark needs {JAVA} or newer; set JAVA_HOME to one",
        )
    return SparkCheck("java", True, version)


def _pyspark(version: str) -> SparkCheck:
    if spark_line(version) in SPARK_LINES:
        return SparkCheck("pyspark", True, version)
    return SparkCheck("pyspark", False, f"{version}: {_wants_line()}")


def _delta(version: str, line: str) -> SparkCheck:
    """Whether the installed package and Spark belong together; without the package all of ours
    works."""
    name = "delta-spark"
    if line in DELTA_RELEASES.get(spark_line(version), ()):
        return SparkCheck(name, True, version)
    release = spark_line(NEWEST_DELTA)
    if line in DELTA_RELEASES[release]:
        # Each release names a newest pyspark, and pip would pull an installed one down to it.
        fix = f'pip install --no-deps "{name}=={NEWEST_DELTA}"'
    else:
        fix = f"no release has one yet; pip uninstall {name}, or use Spark {NEWEST_WITH_DELTA}"
    return SparkCheck(name, False, f"{version} has no jar for Spark {line}; {fix}")


# --- the lines of Spark --------------------------------------------------------------------


def check_spark(version: str) -> None:
    """An error if the plugin is not made for this Spark."""
    if spark_line(version) not in SPARK_LINES:
        raise InvalidRequestError(f"This is Spark {version}, and {_wants_line()}.")


def _wants_line() -> str:
    lines = f"{', '.join(SPARK_LINES[:-1])} and {SPARK_LINES[-1]}"
    return f"offsetlog works with Spark {lines}; {INSTALL_SPARK}"


def delta_jar(spark: str, installed: str | None) -> str | None:
    """The Maven package of Delta for a version of Spark: of the release that is installed, if it
    has one, else of the newest; None: there is none yet."""
    line = spark_line(spark)
    for version in (installed, NEWEST_DELTA):
        release = "" if version is None else spark_line(version)
        if line in DELTA_RELEASES.get(release, ()):
            suffix = "" if release == "4.0" else f"_{line}"
            return f"io.delta:delta-spark{suffix}_2.13:{version}"
    return None


def _reader(version: str) -> SparkCheck:
    """What format("offsetlog") reads with; without a jar all of it works, slower, in Python."""
    jar = spark_jar(version)
    name = "jar for the JVM"
    if jar.path is not None:
        return SparkCheck(name, True, jar.path)
    detail = f"slower: no jar, so Python reads and writes: {jar.reason}; get one: {JAR_COMMAND}"
    return SparkCheck(name, not jar.is_of_another_version, detail, SLOWER)


def _pythons() -> Iterator[SparkCheck]:
    """Both kinds of Python that Spark starts; it has a setting for each."""
    plain = os.environ.get("PYSPARK_PYTHON") or "python3"
    driver = os.environ.get("PYSPARK_DRIVER_PYTHON") or plain
    yield _python("workers' Python", plain)
    if driver != plain:
        yield _python("PYSPARK_DRIVER_PYTHON", driver)
    # Spark finds and runs data sources with the driver's.
    report = ask(driver)
    name = 'format("offsetlog")'
    if report is None or "error" in report:
        why = "that is not a Python" if report is None else report["error"]
        yield SparkCheck(name, False, f"not found by {driver}: {why}; {FIX}")
    elif not report["found"]:
        detail = "importable, but not from a folder that Spark searches; call "
        yield SparkCheck(name, False, detail + "offsetlog.spark.register(spark)")
    else:
        yield SparkCheck(name, True, f"found by {report['executable']}")


def _python(name: str, program: str) -> SparkCheck:
    import offsetlog

    report = ask(program)
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if report is None:
        return SparkCheck(name, False, f"{program} is not a Python that runs; {FIX}")
    executable = str(report["executable"])
    if report["python"] != here:
        wrong = f"is Python {report['python']}, this is {here}, and Spark needs them to be equal"
    elif "offsetlog" not in report:
        wrong = "has no offsetlog"
    elif report["offsetlog"] != offsetlog.__version__:
        wrong = f"has offsetlog {report['offsetlog']}, this is {offsetlog.__version__}"
    elif "error" in report:
        wrong = f"cannot run offsetlog: {report['error']}"
    else:
        other = "" if report["prefix"] == sys.prefix else ", another one with the same versions"
        return SparkCheck(name, True, f"{executable}{other}")
    return SparkCheck(name, False, f"{executable} {wrong}; {FIX}")


def _path_of_workers() -> str:
    """Spark gives its workers its own PySpark, whether or not their Python has one."""
    spec = importlib.util.find_spec("pyspark")
    home = "" if spec is None or spec.origin is None else os.path.dirname(spec.origin)
    zips = sorted(glob.glob(os.path.join(glob.escape(home), "python", "lib", "*.zip")))
    path = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join([*(zips if home else []), *([path] if path else [])])


@functools.lru_cache(maxsize=8)
def ask(program: str) -> dict[str, Any] | None:
    """The report of a Python; None if it is not one."""
    path = shutil.which(program)
    if path is None:
        return None
    try:
        run = subprocess.run(
            [path, "-c", _REPORT], capture_output=True, text=True, timeout=60, check=False,
            stdin=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": _path_of_workers()},
        )  # fmt: skip
        report = json.loads(run.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        return None
    return report if isinstance(report, dict) and "python" in report else None


def java() -> str:
    """The version of the Java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    program = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not program:
        return MISSING
    try:
        run = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return f"{program} does not run"
    match = re.search(r'version "([^"]+)"', run.stderr + run.stdout)
    return match[1] if match else f"{program} shows no version"


def spark_lacks() -> str:
    """Why Spark can't run here; empty if it can."""
    if importlib.util.find_spec("pyspark") is None:
        return f"PySpark is not installed ({INSTALL_SPARK})"
    pyspark = metadata.version("pyspark")
    if spark_line(pyspark) not in SPARK_LINES:
        return f"PySpark is {pyspark}, and {_wants_line()}"
    version = java()
    if version == MISSING:
        return f"there is no Java (Spark needs {JAVA} or newer, by JAVA_HOME or the PATH)"
    if not version[:1].isdigit():  # a JAVA_HOME such as /opt/jdk-21 is not a version
        return f"{version} (Spark needs Java {JAVA} or newer; JAVA_HOME says which)"
    if _numbers(version)[:1] < (JAVA,):
        return f"Java is {version}, and {JAVA} or newer is needed"
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
