"""The jar of what Spark's JVM runs: ``javac`` against the jars of the installed PySpark, no more.

Invariants:

1. Nothing is downloaded, and nothing is needed: without ``javac``, or beside a Spark that the
   classes are not made for, nothing is built, and everything works in Python.
2. The same sources, compiler and Spark give the same bytes.
3. The manifest names the version of offsetlog, the lines of Spark that the classes fit, and the
   digest of the sources. A jar of these sources is not built again; one of others never stays.

``python spark_plugin/java/build.py`` prints the jar's path, or why there is none; with ``--needed``
that is an error, as for a release.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib import metadata, util
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
JARS = HERE.parent / "pyspark_offsetlog" / "jars"
RELEASE = "17"
LINES = ("4.2", "4.3")
"""The lines of Spark that one jar fits, compiled against any of them."""
JAR = JARS / f"offsetlog-spark-{LINES[0]}.jar"
SERVICES = {
    "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister": (
        "offsetlog.spark.source.OffsetLogSource\n"
    ),
}
PROPERTIES = "offsetlog/jar.properties"
"""The same as in the manifest, for the classes themselves."""
DATE = (1980, 1, 1, 0, 0, 0)


class NotBuilt(Exception):
    """Why there is no jar."""


def build() -> Path:
    """The jar of the sources as they are."""
    JARS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, (JARS / ".lock").open("w") as lock:
        # Of several processes of a test run one builds.
        fcntl.flock(lock, fcntl.LOCK_EX)
        sources = sorted(HERE.rglob("*.java"))
        manifest = _manifest(_digest(sources))
        if _manifest_of(JAR) != manifest:
            JAR.unlink(missing_ok=True)
            _compile(_javac(), _spark(), sources, Path(folder))
            _write(Path(folder), manifest)
    return JAR


def _javac() -> str:
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("javac", path=f"{home}/bin" if home else None)
    if program is None:
        raise NotBuilt("there is no javac; a JDK has one")
    return program


def _spark() -> Path:
    spec = util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise NotBuilt("PySpark is not installed")
    version = metadata.version("pyspark")
    if not version.startswith(tuple(f"{line}." for line in LINES)):
        raise NotBuilt(f"it is made for Spark {' and '.join(LINES)}, and {version} is installed")
    return Path(spec.submodule_search_locations[0], "jars")


def _digest(sources: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in (Path(__file__), *sources):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _version() -> str:
    """``__version__`` of offsetlog, without importing it."""
    for node in ast.parse((ROOT / "offsetlog" / "__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__":
            return str(ast.literal_eval(node.value))
    raise NotBuilt("offsetlog/__init__.py has no __version__")


def _manifest(digest: str) -> bytes:
    # A line has at most 72 bytes.
    return (
        "Manifest-Version: 1.0\r\n"
        "Implementation-Title: offsetlog\r\n"
        f"Implementation-Version: {_version()}\r\n"
        f"Offsetlog-Spark-Lines: {' '.join(LINES)}\r\n"
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


def _write(classes: Path, manifest: bytes) -> None:
    files = {
        path.relative_to(classes).as_posix(): path.read_bytes()
        for path in sorted(classes.rglob("*.class"))
    }
    files |= {name: text.encode() for name, text in SERVICES.items()}
    files[PROPERTIES] = f"version={_version()}\nlines={' '.join(LINES)}\n".encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as jar:
        for name, data in {"META-INF/MANIFEST.MF": manifest, **files}.items():
            info = zipfile.ZipInfo(name, DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o100644 << 16
            info.create_system = 3
            jar.writestr(info, data)
    new = JAR.with_suffix(".tmp")
    new.write_bytes(out.getvalue())
    new.replace(JAR)


if __name__ == "__main__":
    try:
        print(build())
    except NotBuilt as why:
        if "--needed" in sys.argv:
            raise SystemExit(f"There is no jar for Spark's JVM: {why}.") from None
        print(f"The jar for Spark's JVM is not built: {why}. Everything works without it.")
