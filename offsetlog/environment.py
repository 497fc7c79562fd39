"""This machine: its Java and Pythons, and whether ``format("offsetlog")`` would work on it.

Invariants:

1. No Spark is started. What Spark's workers would run is asked itself: their Python, for its
   version and for what it finds.
2. Each line that is wrong says what to do. None of them makes a filesystem unfit.
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

MISSING = "not installed"
PYSPARK = ("4.2", "4.3")
DELTA = ("4.4", "4.5")
JAVA = 17
FIX = (
    f"set PYSPARK_PYTHON={sys.executable}, or make the session with offsetlog.spark.session(), "
    "which does so"
)
_ASK = """
import json, pkgutil, sys
told = {"executable": sys.executable, "python": "%d.%d" % sys.version_info[:2]}
told["prefix"] = sys.prefix
try:
    import offsetlog
    told["offsetlog"] = offsetlog.__version__
    import fsspec, numpy, pyarrow, xxhash
    import pyspark_offsetlog
    told["source"] = pyspark_offsetlog.DefaultSource.name()
except Exception as error:
    told["error"] = str(error)
told["found"] = any(module.name == "pyspark_offsetlog" for module in pkgutil.iter_modules())
print(json.dumps(told))
"""


class SparkCheck(NamedTuple):
    name: str
    passed: bool
    detail: str


def spark_checks(java: str) -> list[SparkCheck]:
    """Nothing where Spark is not installed: then nobody here needs it."""
    version = version_of("pyspark")
    if version is None:
        return []
    checks = [_java(java), _range("pyspark", version, PYSPARK)]
    delta = version_of("delta-spark")
    if delta is not None:
        checks.append(_range("delta-spark", delta, DELTA))
    return [*checks, *_pythons()]


def version_of(package: str) -> str | None:
    """The installed version of a package; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _java(found: str) -> SparkCheck:
    number = re.match(r"(?:1\.)?([0-9]{1,4})", found)
    if number is None:
        return SparkCheck("java", False, f"{found}: install Java {JAVA}, or set JAVA_HOME to one")
    if int(number[1]) < JAVA:
        return SparkCheck(
            "java", False, f"{found} is too old: Spark needs {JAVA} or newer; set JAVA_HOME to one"
        )
    return SparkCheck("java", True, found)


def _range(package: str, version: str, allowed: tuple[str, str]) -> SparkCheck:
    low, high = ([int(part) for part in text.split(".")] for text in allowed)
    given = [int(part) for part in re.findall(r"[0-9]{1,9}", version)[:2]]
    if low <= given < high:
        return SparkCheck(package, True, version)
    return SparkCheck(
        package,
        False,
        f'{version}: the plugin is made for {allowed[0]}; pip install "{package}=={allowed[0]}.*"',
    )


def _pythons() -> Iterator[SparkCheck]:
    """Of both kinds of worker: Spark has a setting for each."""
    plain = os.environ.get("PYSPARK_PYTHON") or "python3"
    driver = os.environ.get("PYSPARK_DRIVER_PYTHON") or plain
    yield _python("workers' Python", plain)
    if driver != plain:
        yield _python("PYSPARK_DRIVER_PYTHON", driver)
    # What Spark finds by name it looks for, and runs, with the driver's.
    told = ask(driver)
    name = 'format("offsetlog")'
    if told is None or "error" in told:
        why = "that is no Python" if told is None else told["error"]
        yield SparkCheck(name, False, f"not found by {driver}: {why}; {FIX}")
    elif not told["found"]:
        detail = "importable, but not in a folder that Spark looks through; call "
        yield SparkCheck(name, False, detail + "offsetlog.spark.register(spark)")
    else:
        yield SparkCheck(name, True, f"found by {told['executable']}")


def _python(name: str, program: str) -> SparkCheck:
    import offsetlog

    told = ask(program)
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if told is None:
        return SparkCheck(name, False, f"{program} is no Python that runs; {FIX}")
    who = str(told["executable"])
    if told["python"] != here:
        wrong = f"is Python {told['python']}, this is {here}, and Spark wants them equal"
    elif "offsetlog" not in told:
        wrong = "has no offsetlog"
    elif told["offsetlog"] != offsetlog.__version__:
        wrong = f"has offsetlog {told['offsetlog']}, this is {offsetlog.__version__}"
    elif "error" in told:
        wrong = f"cannot run offsetlog: {told['error']}"
    else:
        same = told["prefix"] == sys.prefix
        return SparkCheck(name, True, who if same else f"{who}, another one with the same versions")
    return SparkCheck(name, False, f"{who} {wrong}; {FIX}")


def _path_of_workers() -> str:
    """Spark gives its workers its own PySpark, whether or not their Python has one."""
    found = importlib.util.find_spec("pyspark")
    home = "" if found is None or found.origin is None else os.path.dirname(found.origin)
    zips = sorted(glob.glob(os.path.join(glob.escape(home), "python", "lib", "*.zip")))
    given = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join([*(zips if home else []), *([given] if given else [])])


@functools.lru_cache(maxsize=8)
def ask(program: str) -> dict[str, Any] | None:
    """What a Python says of itself; None if it is none."""
    found = shutil.which(program)
    if found is None:
        return None
    try:
        done = subprocess.run(
            [found, "-c", _ASK], capture_output=True, text=True, timeout=60, check=False,
            stdin=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": _path_of_workers()},
        )  # fmt: skip
        told = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        return None
    return told if isinstance(told, dict) and "python" in told else None


def java() -> str:
    """The version of the Java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    program = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not program:
        return MISSING
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return f"{program} does not run"
    found = re.search(r'version "([^"]+)"', done.stderr + done.stdout)
    return found[1] if found else f"{program} tells no version"


def spark_lacks() -> str:
    """Why Spark can't run here; empty if it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is not installed (pip install 'offsetlog[spark]')"
    pyspark = metadata.version("pyspark")
    if _numbers(pyspark) < _numbers(PYSPARK[0]):
        return f"PySpark is {pyspark}, and {PYSPARK[0]} or newer is needed"
    version = java()
    if version == MISSING:
        return f"there is no Java (Spark needs {JAVA} or newer, by JAVA_HOME or the PATH)"
    if not version[:1].isdigit():  # a JAVA_HOME such as /opt/jdk-21 is no version
        return f"{version} (Spark needs Java {JAVA} or newer; JAVA_HOME says which)"
    if _numbers(version)[:1] < (JAVA,):
        return f"Java is {version}, and {JAVA} or newer is needed"
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
