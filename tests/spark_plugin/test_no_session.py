"""``offsetlog.spark.session`` where Spark cannot start: one sentence, which says what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import environment

PROGRAM = "import offsetlog.spark\noffsetlog.spark.session(delta={delta}, config={config!r})"


def last_line(delta: bool, config: dict[str, str] | None = None, **more: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(delta=delta, config=config or {})],
        capture_output=True, text=True, timeout=300, check=False, env=environment(**more),
    )  # fmt: skip
    assert done.returncode == 1
    assert "JAVA_GATEWAY_EXITED" not in done.stderr
    return done.stderr.splitlines()[-1]


def test_no_java(tmp_path: Path) -> None:
    told = last_line(False, JAVA_HOME=str(tmp_path))
    assert f"Spark can't start its Java: {tmp_path}/bin/java does not run: install Java 17" in told


@pytest.mark.parametrize("delta", [True, False])
def test_what_can_not_be_downloaded(tmp_path: Path, delta: bool) -> None:
    """An address that nobody answers stands for a machine without a network."""
    (tmp_path / "ivy.xml").write_text(
        '<ivysettings><settings defaultResolver="nobody"/><resolvers><ibiblio name="nobody" '
        'm2compatible="true" root="http://127.0.0.1:9/"/></resolvers></ivysettings>'
    )
    config = {"spark.jars.ivySettings": str(tmp_path / "ivy.xml"),
              "spark.jars.ivy": str(tmp_path / "ivy")}  # fmt: skip
    if not delta:
        config["spark.jars.packages"] = "org.example:nothing:1.0"
    told = last_line(delta, config)
    assert "Spark's Java ended before it was ready. What it said stands above." in told
    assert ("session(delta=False) needs none" in told) is delta
