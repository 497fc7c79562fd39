"""The jars of what Spark's JVM runs, one for each line of Spark that needs its own: ``javac``
against the jars of a Spark, no more.

``offsetlog/`` is the same for all lines, and ``lines/4.1/`` what Spark 4.1 has in its own way. The
Spark is the installed PySpark, or with ``--jars FOLDER`` the one whose jars lie there; its line is
what those jars say.

Invariants:

1. Nothing is downloaded, and nothing is needed: without ``javac``, or beside a Spark that the
   classes are not made for, nothing is built, and everything works in Python.
2. The same sources, compiler and Spark give the same bytes.
3. The manifest names the version of offsetlog, the lines of Spark that the classes fit, and the
   digest of the sources. A jar of these sources is not built again; one of others never stays, of
   whichever line it is.

``python spark_plugin/java/build.py`` prints the jar's path, or why there is none; with ``--needed``
that is an error, as for a release.
"""

from __future__ import annotations

import argparse
import ast
import fcntl
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from importlib import util
from pathlib import Path
from typing import NamedTuple

from class_files import named

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
JARS = HERE.parent / "pyspark_offsetlog" / "jars"
RELEASE = "17"
LINES = {"4.0": ("4.0",), "4.1": ("4.1",), "4.2": ("4.2", "4.3")}
"""The folders of ``lines``, and the lines of Spark that each one's jar fits, compiled against any
of them."""
SERVICES = {
    "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister": (
        "offsetlog.spark.source.OffsetLogSource\n"
    ),
}
PROPERTIES = "offsetlog/jar.properties"
"""The same as in the manifest, for the classes themselves."""
NAMED = "offsetlog/spark.names"
"""What the classes name of Spark, which a vendor's need not have: they look before they use it."""
DATE = (1980, 1, 1, 0, 0, 0)


class NotBuilt(Exception):
    """Why there is no jar."""


class Jar(NamedTuple):
    """What a jar is made of."""

    name: str
    path: Path
    sources: list[Path]
    manifest: bytes


def build(spark: Path | None = None) -> Path:
    """The jar of the sources as they are, for a Spark whose jars lie in a folder."""
    JARS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, (JARS / ".lock").open("w") as lock:
        # Of several processes of a test run one builds.
        fcntl.flock(lock, fcntl.LOCK_EX)
        jars = {name: _jar(name) for name in LINES}
        _remove_old(jars.values())
        spark = spark or _installed()
        jar = jars[_name(spark)]
        if not jar.path.exists():
            _compile(_javac(), spark, jar.sources, Path(folder))
            _write(Path(folder), jar)
    return jar.path


def _jar(name: str) -> Jar:
    folders = (HERE / "offsetlog", HERE / "lines" / name)
    sources = sorted(path for folder in folders for path in folder.rglob("*.java"))
    path = JARS / f"offsetlog-spark-{name}.jar"
    return Jar(name, path, sources, _manifest(_digest(sources), LINES[name]))


def _remove_old(jars: Iterable[Jar]) -> None:
    present = {jar.path: jar.manifest for jar in jars}
    for path in JARS.glob("*.jar"):
        if _manifest_of(path) != present.get(path):
            path.unlink()


def _javac() -> str:
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("javac", path=f"{home}/bin" if home else None)
    if program is None:
        raise NotBuilt("there is no javac; a JDK has one")
    return program


def _installed() -> Path:
    spec = util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise NotBuilt("PySpark is not installed")
    return Path(spec.submodule_search_locations[0], "jars")


def _name(spark: Path) -> str:
    """Which jar is for the Spark whose jars lie in a folder."""
    versions = [
        match[1]
        for path in spark.glob("spark-core_*.jar")
        if (match := re.fullmatch(r"spark-core_[\d.]+-(\d.+)\.jar", path.name))
    ]
    if len(versions) != 1:
        raise NotBuilt(f"{spark} does not hold the jars of one Spark")
    for name, lines in LINES.items():
        if versions[0].startswith(tuple(f"{line}." for line in lines)):
            return name
    *rest, last = (line for lines in LINES.values() for line in lines)
    raise NotBuilt(f"it is made for Spark {', '.join(rest)} and {last}, and this is {versions[0]}")


def _digest(sources: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in (*sorted(HERE.glob("*.py")), *sources):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _version() -> str:
    """``__version__`` of offsetlog, without importing it."""
    for node in ast.parse((ROOT / "offsetlog" / "__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__":
            return str(ast.literal_eval(node.value))
    raise NotBuilt("offsetlog/__init__.py has no __version__")


def _manifest(digest: str, lines: tuple[str, ...]) -> bytes:
    # A line has at most 72 bytes.
    return (
        "Manifest-Version: 1.0\r\n"
        "Implementation-Title: offsetlog\r\n"
        f"Implementation-Version: {_version()}\r\n"
        f"Offsetlog-Spark-Lines: {' '.join(lines)}\r\n"
        f"Offsetlog-Sources: {digest[:32]}\r\n"
        "\r\n"
    ).encode()


def _manifest_of(jar: Path) -> bytes:
    try:
        with zipfile.ZipFile(jar) as files:
            return files.read("META-INF/MANIFEST.MF")
    except (OSError, zipfile.BadZipFile, KeyError):
        return b""


def _compile(javac: str, spark: Path, sources: list[Path], classes: Path) -> None:
    done = subprocess.run(
        [
            javac, "--release", RELEASE, "-encoding", "UTF-8", "-g:source,lines", "-proc:none",
            # Spark's jars name annotations, and jars, that it does not ship.
            "-Xlint:all,-classfile,-path,-serial", "-Werror",
            "-cp", f"{spark}/*", "-d", str(classes), *map(str, sources),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.stderr.write(done.stderr)
        raise SystemExit(f"{len(sources)} Java sources could not be compiled.")


def _write(classes: Path, jar: Jar) -> None:
    files = {
        path.relative_to(classes).as_posix(): path.read_bytes()
        for path in sorted(classes.rglob("*.class"))
    }
    names = named(files.values(), ("org/apache/spark/", "org/apache/arrow/"))
    files[NAMED] = "".join(f"{name}\n" for name in names).encode()
    files |= {name: text.encode() for name, text in SERVICES.items()}
    files[PROPERTIES] = f"version={_version()}\nlines={' '.join(LINES[jar.name])}\n".encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {"META-INF/MANIFEST.MF": jar.manifest, **files}.items():
            info = zipfile.ZipInfo(name, DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o100644 << 16
            info.create_system = 3
            archive.writestr(info, data)
    new = jar.path.with_suffix(".tmp")
    new.write_bytes(out.getvalue())
    new.replace(jar.path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--needed", action="store_true", help="without a jar it is an error")
    parser.add_argument("--jars", type=Path, help="the folder of a Spark's jars")
    arguments = parser.parse_args()
    try:
        print(build(arguments.jars))
    except NotBuilt as why:
        if arguments.needed:
            raise SystemExit(f"There is no jar for Spark's JVM: {why}.") from None
        print(f"The jar for Spark's JVM is not built: {why}. Everything works without it.")
