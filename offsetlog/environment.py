"""What this machine has: Java, and whether Spark can run here."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from importlib import metadata

MISSING = "not installed"
SPARK = (4, 2)
JAVA = 17


def java() -> str:
    """The version of the Java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    program = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not program:
        return MISSING
    try:
        process = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return f"{program} does not run"
    version = re.search(r'version "([^"]+)"', process.stderr + process.stdout)
    return version[1] if version else f"{program} tells no version"


def spark_lacks() -> str:
    """Why Spark can't run here; empty if it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is not installed (pip install 'offsetlog[spark]')"
    pyspark = metadata.version("pyspark")
    if _numbers(pyspark) < SPARK:
        return f"PySpark is {pyspark}, and {SPARK[0]}.{SPARK[1]} or newer is needed"
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
