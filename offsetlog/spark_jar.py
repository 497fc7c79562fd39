"""The jar that Spark's JVM runs: which one is for a Spark, and how it is built: ``javac`` against
the jars of that Spark, no more.

``java/offsetlog/`` is the same for all lines of Spark, and ``java/lines/4.1/`` what Spark 4.1 has
in its own way. A release holds a jar for each line, and the sources. Where there is no jar, or the
Spark is a vendor's, one is built of the sources against the very Spark that is there, once, into
the user's cache folder.

Invariants:

1. Nothing is downloaded, and nothing is needed: without ``javac``, or beside a Spark that the
   classes are not made for, nothing is built, and everything works in Python. Why is one sentence.
2. The same sources, compiler and Spark give the same bytes.
3. The manifest names the version of offsetlog, the lines of Spark that the classes fit, and the
   digest of the sources. In a checkout a jar of these sources is not built again, and one of others
   never stays, of whichever line it is. In the cache a jar's name says what it is of.
4. A jar gets its name when it is complete, so any number of processes may build at once.
5. What lies in the cache is run: a folder or a jar that others may write is not used.
"""

from __future__ import annotations

import fcntl
import functools
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

from offsetlog import __version__
from offsetlog.class_files import named

RELEASE = "17"
SECONDS = 300
"""The most that a build may take."""
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
STRICT = ("-Xlint:all,-classfile,-path,-serial", "-Werror")
"""For developers. Spark's jars name annotations, and jars, that it does not ship; and another
``javac`` may warn of more."""
CACHE = "XDG_CACHE_HOME"
COMMAND = "offsetlog jar"


class NotBuilt(Exception):
    """Why there is no jar."""


class SparkJar(NamedTuple):
    """The jar of offsetlog for a Spark, or why there is none."""

    path: str | None
    reason: str = ""
    is_of_another_version: bool = False


class _Jar(NamedTuple):
    """What a jar is made of."""

    name: str
    path: Path
    sources: list[Path]
    manifest: bytes


def spark_line(version: str) -> str:
    """The line of a version: "4.2" of "4.2.1", or of a vendor's "4.2.1-amzn-0"."""
    return ".".join(str(int(number)) for number in re.findall(r"\d+", version)[:2])


# --- which there is ------------------------------------------------------------------------


def spark_jar(version: str) -> SparkJar:
    """The jar for a version of Spark: one of this release, or one that was built for this Spark.
    One of another offsetlog is not used."""
    shipped = _shipped(version)
    if shipped.path is None or _is_vendors(version):
        built = _built(version)
        if built is not None and _is_safe(built):
            return SparkJar(str(built))
    return shipped


def ready_jar(version: str) -> SparkJar:
    """The same, and where there is none it is built, if it can be."""
    found = spark_jar(version)
    if found.path is not None and not _is_vendors(version):
        return found
    try:
        return SparkJar(str(build_for(version)))
    except NotBuilt as why:
        if found.path is not None:
            return found
        return found._replace(reason=f"{found.reason}, and none was built: {why}")


def _shipped(version: str) -> SparkJar:
    line, others = spark_line(version), []
    package = _package()
    for jar in sorted((package / "jars").glob("*.jar")) if package is not None else []:
        facts = _facts(jar)
        if line not in facts.get("Offsetlog-Spark-Lines", "").split():
            continue
        of = facts.get("Implementation-Version", "unknown")
        if of == __version__:
            return SparkJar(str(jar))
        others.append(f"{jar} is of offsetlog {of}, and this is {__version__}")
    if others:
        return SparkJar(None, "; ".join(others), True)
    return SparkJar(None, f"this offsetlog has no jar for Spark {line}")


def _package() -> Path | None:
    spec = util.find_spec("pyspark_offsetlog")
    folders = spec.submodule_search_locations if spec is not None else None
    return Path(folders[0]) if folders else None


def _is_vendors(version: str) -> bool:
    """Whether it may differ from the release that the jar of its line was compiled against."""
    spark = _spark_of(version)
    return spark is not None and not re.fullmatch(r"\d+(\.\d+)*", spark[1])


def _spark_of(version: str) -> tuple[Path, str] | None:
    """The jars of the Spark here, and the version that they say, if it is of the same line."""
    try:
        jars = _installed()
        exact = _version_of(jars)
    except NotBuilt:
        return None
    return (jars, exact) if spark_line(exact) == spark_line(version) else None


def _built(version: str) -> Path | None:
    """Where the jar lies that was built for the Spark here; it need not be there."""
    spark, sources = _spark_of(version), _sources()
    if spark is None or sources is None:
        return None
    try:
        digest = _digest(_jar(sources, Path(), _name(spark[1])).sources)
    except NotBuilt:
        return None
    return _cache() / f"offsetlog-spark-{__version__}-{spark[1]}-{digest[:16]}.jar"


def _sources() -> Path | None:
    """The folder of the Java sources: in the installed package, or beside it in a checkout."""
    package = _package()
    for folder in (package / "java", package.parent / "java") if package is not None else ():
        if (folder / "lines").is_dir():
            return folder
    return None


def _cache() -> Path:
    base = os.environ.get(CACHE) or ""
    if not os.path.isabs(base):
        below = "Library/Caches" if sys.platform == "darwin" else ".cache"
        base = os.path.join(os.path.expanduser("~"), below)
    return Path(base, "offsetlog", "jars")


def _is_safe(path: Path) -> bool:
    """Whether it is there, and nobody else may write it."""
    try:
        found = [os.stat(path), os.stat(path.parent)]
    except OSError:
        return False
    return all(each.st_uid == os.geteuid() and not each.st_mode & 0o022 for each in found)


def _facts(jar: Path) -> dict[str, str]:
    """What the manifest of a jar says."""
    lines = _manifest_of(jar).decode(errors="replace").splitlines()
    return dict(line.split(": ", 1) for line in lines if ": " in line)


# --- building ------------------------------------------------------------------------------


def build_for(version: str) -> Path:
    """The jar for the Spark that is here, in the user's cache folder; built, if it is not there."""
    if _spark_of(version) is None:
        raise NotBuilt(f"the jars of Spark {version} are not here: {_installed()} has others")
    sources, path = _sources(), _built(version)
    if sources is None or path is None:
        raise NotBuilt("the Java sources are not installed")
    if _is_safe(path):
        return path
    javac = _javac()
    try:
        for folder in (path.parent.parent, path.parent):
            folder.mkdir(0o700, parents=True, exist_ok=True)
        if not _is_safe(path.parent) or (path.exists() and not _is_safe(path)):
            raise NotBuilt(f"others may write {path.parent}; remove it, or set {CACHE}")
        _build(javac, _installed(), _jar(sources, path, _name(_version_of(_installed()))), ())
    except OSError as error:
        raise NotBuilt(
            f"{path.parent} can't be written ({error.strerror}); set {CACHE} to a folder that can"
        ) from None
    return path


def build_into(jars: Path, sources: Path, spark: Path | None = None) -> Path:
    """The jar of a checkout's sources as they are, for a Spark whose jars lie in a folder."""
    jars.mkdir(exist_ok=True)
    with (jars / ".lock").open("w") as lock:
        # Of several processes of a test run one builds.
        fcntl.flock(lock, fcntl.LOCK_EX)
        all_of_them = {
            name: _jar(sources, jars / f"offsetlog-spark-{name}.jar", name) for name in LINES
        }
        _remove_old(jars, all_of_them.values())
        spark = spark or _installed()
        jar = all_of_them[_name(_version_of(spark))]
        if not jar.path.exists():
            _build(_javac(), spark, jar, STRICT)
    return jar.path


def _build(javac: str, spark: Path, jar: _Jar, flags: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _compile(javac, spark, jar.sources, Path(folder), flags)
        _write(Path(folder), jar)


def _jar(sources: Path, path: Path, name: str) -> _Jar:
    folders = (sources / "offsetlog", sources / "lines" / name)
    files = sorted(file for folder in folders for file in folder.rglob("*.java"))
    return _Jar(name, path, files, _manifest(_digest(files), LINES[name]))


def _remove_old(folder: Path, jars: Iterable[_Jar]) -> None:
    present = {jar.path: jar.manifest for jar in jars}
    for path in folder.glob("*.jar"):
        if _manifest_of(path) != present.get(path):
            path.unlink()


def _javac() -> str:
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("javac", path=f"{home}/bin" if home else None)
    if program is None:
        raise NotBuilt(f"there is no javac; a JDK {RELEASE} or newer has one")
    return program


def _installed() -> Path:
    home = os.environ.get("SPARK_HOME")
    if home and Path(home, "jars").is_dir():
        return Path(home, "jars")
    spec = util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise NotBuilt("PySpark is not installed")
    return Path(spec.submodule_search_locations[0], "jars")


@functools.lru_cache(maxsize=8)
def _version_of(spark: Path) -> str:
    """The version of the Spark whose jars lie in a folder."""
    versions = [
        match[1]
        for path in spark.glob("spark-core_*.jar")
        if (match := re.fullmatch(r"spark-core_[\d.]+-(\d[\w.+-]*)\.jar", path.name))
    ]
    if len(versions) != 1:
        raise NotBuilt(f"{spark} does not hold the jars of one Spark")
    return versions[0]


def _name(version: str) -> str:
    """Which jar is for a version of Spark."""
    for name, lines in LINES.items():
        if version.startswith(tuple(f"{line}." for line in lines)):
            return name
    *rest, last = (line for lines in LINES.values() for line in lines)
    raise NotBuilt(f"it is made for Spark {', '.join(rest)} and {last}, and this is {version}")


def _digest(sources: list[Path]) -> str:
    digest = hashlib.sha256()
    here = Path(__file__)
    for path in (here.with_name("class_files.py"), here, *sources):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _manifest(digest: str, lines: tuple[str, ...]) -> bytes:
    # A line has at most 72 bytes.
    return (
        "Manifest-Version: 1.0\r\n"
        "Implementation-Title: offsetlog\r\n"
        f"Implementation-Version: {__version__}\r\n"
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


def _compile(
    javac: str, spark: Path, sources: list[Path], classes: Path, flags: tuple[str, ...]
) -> None:
    command = [
        javac, "--release", RELEASE, "-encoding", "UTF-8", "-g:source,lines", "-proc:none",
        *flags, "-cp", f"{spark}/*", "-d", str(classes), *map(str, sources),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        why = getattr(error, "strerror", None) or f"it did not end within {SECONDS} s"
        raise NotBuilt(f"{javac} does not run: {why}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        if flags:
            raise NotBuilt(f"{len(sources)} Java sources could not be compiled:\n{said}")
        first = said.partition("\n")[0][:300] or f"it ended with status {done.returncode}"
        raise NotBuilt(f"{javac} failed: {first}; a JDK {RELEASE} or newer is needed")


def _write(classes: Path, jar: _Jar) -> None:
    files = {
        path.relative_to(classes).as_posix(): path.read_bytes()
        for path in sorted(classes.rglob("*.class"))
    }
    names = named(files.values(), ("org/apache/spark/", "org/apache/arrow/"))
    files[NAMED] = "".join(f"{name}\n" for name in names).encode()
    files |= {name: text.encode() for name, text in SERVICES.items()}
    files[PROPERTIES] = f"version={__version__}\nlines={' '.join(LINES[jar.name])}\n".encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {"META-INF/MANIFEST.MF": jar.manifest, **files}.items():
            info = zipfile.ZipInfo(name, DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o100644 << 16
            info.create_system = 3
            archive.writestr(info, data)
    handle, new = tempfile.mkstemp(".tmp", jar.path.name, jar.path.parent)
    try:
        with open(handle, "wb") as file:
            file.write(out.getvalue())
        os.chmod(new, 0o644)
        os.replace(new, jar.path)
    except BaseException:
        Path(new).unlink(missing_ok=True)
        raise
