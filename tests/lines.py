"""The tests on another line of Spark than the default one: ``python -m tests.lines 4.0 4.1``.

Each line has a virtual environment under ``.cache/`` with its PySpark alone; all other packages are
those of ``.venv``. It builds the line's jar for Spark's JVM, and runs the tests that are marked
``every_line``: those of source and sink with tasks in the JVM, and some (``both_paths``) in Python
too; without a ``javac``, all in Python. With ``--all``, all tests. With ``--jar``, for a release,
it builds the jars and no more, and it is an error if one can't be built.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYSPARK = {"4.0": "4.0.5", "4.1": "4.1.4", "4.2": "4.2.0", "4.3": "4.3.0"}
"""The releases that are tested; of the default line it is the one in constraints.txt."""
SHARED = """import os, site, sys; site.addsitedir(os.path.normpath(os.path.join(\
sys.prefix, "..", "..", ".venv", "lib", "python%d.%d" % sys.version_info[:2], "site-packages")))
"""
STORIES = ("tests/spark_plugin", "tests/test_package.py", "-n", "2", "--dist", "loadfile")
IN_JVM = "every_line and not in_python or every_line(both_paths=True)"
IN_PYTHON = "every_line"


def python_of(line: str) -> Path:
    """The Python of a line, whose PySpark is installed if it is not."""
    home = ROOT / ".cache" / f"spark-{line}"
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


def run(line: str, whole: bool, arguments: list[str]) -> bool:
    """Run all tests on a line, or its stories; whether all passed."""
    python = python_of(line)
    print(f"On Spark {PYSPARK[line]}:", flush=True)
    has_jar = build_jar(line)
    chosen = () if whole else (*STORIES, "-m", IN_JVM if has_jar else IN_PYTHON)
    environment = {**os.environ, "PYSPARK_PYTHON": str(python)}
    status = subprocess.run(
        [python, "-m", "pytest", *chosen, *arguments], cwd=ROOT, env=environment, check=False
    ).returncode
    return status == 0


def main(arguments: list[str]) -> int:
    lines = [name for name in arguments if name in PYSPARK]
    rest = arguments[len(lines) :]
    if rest == ["--jar"]:
        return 0 if lines and all(build_jar(line) for line in lines) else 1
    whole = rest[:1] == ["--all"]
    failed = [line for line in lines if not run(line, whole, rest[1:] if whole else rest)]
    if failed:
        print(f"Tests failed on Spark {', '.join(failed)}.")
    return 1 if failed or not lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
