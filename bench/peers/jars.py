"""Java packages for the peers, with all that they depend on, kept in the bench's cache.

1. Maven is used where it is installed; else Ivy, out of the jar that PySpark ships.
2. Each set has a folder of its own, which gets its name only when it is complete.
3. The user's ``~/.m2`` and ``~/.ivy2`` are not touched: both tools get a repository in the cache.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

from bench.peers.process import PeerUnavailableError

PATIENCE = 900


class Package(NamedTuple):
    """A package of a Maven repository."""

    group: str
    artifact: str
    version: str


def fetch(name: str, packages: Sequence[Package], cache: Path, alone: bool = False) -> Path:
    """The folder of the jars of some packages; fetched the first time. ``alone``: without what
    they depend on, for packages whose own list is longer than what is used of them."""
    target = cache / "jars" / name
    if target.exists():
        return target
    if shutil.which("java") is None:
        raise PeerUnavailableError("the peers need Java 17 or newer on the PATH")
    target.parent.mkdir(parents=True, exist_ok=True)
    attempt = Path(tempfile.mkdtemp(dir=target.parent))
    try:
        jars = attempt / "jars"
        if shutil.which("mvn"):
            (_maven_alone if alone else _maven)(packages, attempt, jars, cache)
        else:
            _ivy(packages, attempt, jars, cache, alone)
        if not any(jars.glob("*.jar")):
            raise PeerUnavailableError(f"no jars came for {', '.join(map(str, packages))}")
        jars.replace(target)
    finally:
        shutil.rmtree(attempt, ignore_errors=True)
    return target


def _maven(packages: Sequence[Package], attempt: Path, jars: Path, cache: Path) -> None:
    wanted = "".join(
        f"<dependency><groupId>{p.group}</groupId><artifactId>{p.artifact}</artifactId>"
        f"<version>{p.version}</version></dependency>"
        for p in packages
    )
    (attempt / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>bench</groupId><artifactId>peer</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{wanted}</dependencies></project>"
    )
    _run(
        ["mvn", "-B", "-q", f"-Dmaven.repo.local={cache / 'm2'}"]
        + ["dependency:copy-dependencies", f"-DoutputDirectory={jars}"],
        attempt,
    )


def _maven_alone(packages: Sequence[Package], attempt: Path, jars: Path, cache: Path) -> None:
    for package in packages:
        _run(
            ["mvn", "-B", "-q", f"-Dmaven.repo.local={cache / 'm2'}", "dependency:copy"]
            + [f"-Dartifact={':'.join(package)}", f"-DoutputDirectory={jars}"],
            attempt,
        )


def _ivy(
    packages: Sequence[Package], attempt: Path, jars: Path, cache: Path, alone: bool = False
) -> None:
    follow = str(not alone).lower()
    wanted = "".join(
        f"<dependency org={quoteattr(p.group)} name={quoteattr(p.artifact)}"
        f' rev={quoteattr(p.version)} conf="default->default" transitive="{follow}"/>'
        for p in packages
    )
    (attempt / "ivy.xml").write_text(
        '<ivy-module version="2.0"><info organisation="bench" module="peer"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{wanted}</dependencies></ivy-module>"
    )
    _run(
        ["java", "-jar", str(_ivy_jar()), "-cache", str(cache / "ivy"), "-ivy", "ivy.xml"]
        + ["-confs", "default", "-types", "jar", "bundle", "-warn"]
        + ["-retrieve", f"{jars}/[artifact]-[revision].[ext]"],
        attempt,
    )


def _ivy_jar() -> Path:
    spec = find_spec("pyspark")
    places = [] if spec is None else list(spec.submodule_search_locations or [])
    found = [jar for place in places for jar in (Path(place) / "jars").glob("ivy-*.jar")]
    if not found:
        raise PeerUnavailableError(
            "the Kafka peer's jars are fetched with Maven, or with the Ivy jar that PySpark "
            "ships: install one of them (pip install pyspark)"
        )
    return found[0]


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise PeerUnavailableError(f"{command[0]} could not fetch the peer's jars:\n{last}")
