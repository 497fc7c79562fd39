"""``offsetlog demo`` with Spark: played to its end, it counts, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import time
from pathlib import Path

from tests.cli.shell import PROGRAM
from tests.cli.test_demo_without_spark import processes_of
from tests.pages import environment

NOISE = ("WARN", "ERROR", "Exception", "Traceback", "at org.apache", "sc.setLogLevel")


def _environment(place: Path, **more: str) -> dict[str, str]:
    return environment(TMPDIR=str(place), COLUMNS="80", **more)


def test_the_whole_story(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, "demo", "--spark", "--seconds", "3", "--producers", "1", "--json"],
        capture_output=True, text=True, env=_environment(tmp_path), timeout=1500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    findings = json.loads(done.stdout)
    assert len(findings) == 9 and all(finding["kept"] for finding in findings)
    details = [finding["detail"].replace(",", "") for finding in findings]
    for detail in details[:2]:
        sent, stored, billed, missing, twice = (int(n) for n in re.findall(r"\d+", detail))
        assert sent == stored == billed > 1000 and missing == twice == 0
    assert re.search(r"Spark KILLED", done.stderr) and "replay" in done.stderr
    assert not [line for line in done.stderr.splitlines() if any(n in line for n in NOISE)]
    lines = done.stderr.replace(str(tmp_path), "/tmp").splitlines()
    assert max(map(len, lines)) <= 110
    assert list(tmp_path.glob("offsetlog-demo-*")) == [] and processes_of(tmp_path) == []


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*PROGRAM, "demo", "--spark"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=_environment(tmp_path), start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        while b"Spark starting" not in process.stdout.readline():
            assert process.poll() is None
        time.sleep(2)  # until there is something to end
        os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (130, b"")
    assert list(tmp_path.glob("offsetlog-demo-*")) == [] and processes_of(tmp_path) == []


def test_spark_that_does_not_start_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n"
        '[ "$1" = -version ] || { echo "no room for a heap" >&2; exit 1; }\n'
    )
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    done = subprocess.run(
        [*PROGRAM, "demo"], capture_output=True, text=True, timeout=300, check=False,
        env=_environment(tmp_path, JAVA_HOME=str(java.parent.parent)),
    )  # fmt: skip
    assert done.returncode == 1
    assert "no room for a heap" in done.stderr and "Traceback" not in done.stderr
    *_, last = done.stderr.splitlines()
    assert last.startswith("offsetlog: Spark ended with status 1.")
    [kept] = tmp_path.glob("offsetlog-demo-*")
    assert str(kept) in last and (kept / "Spark.log").exists() and processes_of(tmp_path) == []
