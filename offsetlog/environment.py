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

MISSING = "not installed"
PYSPARK = ("4.2", "4.3")
DELTA = ("4.4", "4.5")
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


def spark_checks(java: str) -> list[SparkCheck]:
    """Empty if Spark is not installed: then nobody here needs it."""
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


def _range(package: str, version: str, allowed: tuple[str, str]) -> SparkCheck:
    low, high = ([int(part) for part in text.split(".")] for text in allowed)
    installed = [int(part) for part in re.findall(r"[0-9]{1,9}", version)[:2]]
    if low <= installed < high:
        return SparkCheck(package, True, version)
    return SparkCheck(
        package,
        False,
        f'{version}: the plugin is made for {allowed[0]}; pip install "{package}=={allowed[0]}.*"',
    )


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
        return "PySpark is not installed (pip install 'offsetlog[spark]')"
    pyspark = metadata.version("pyspark")
    if _numbers(pyspark) < _numbers(PYSPARK[0]):
        return f"PySpark is {pyspark}, and {PYSPARK[0]} or newer is needed"
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
