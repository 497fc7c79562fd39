"""The README's code runs, and what it says of the package is so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, flags=re.DOTALL)


def run(command: list[str], text: str | None = None) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, env=env, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_first_program(tmp_path: Path) -> None:
    first, groups = (p.replace("/tmp/offsetlog-first", str(tmp_path)) for p in blocks("python"))
    out = run([sys.executable, "-c", first])
    assert "b'ann' b'3 apples'" in out
    assert re.search(r"\{0: \d, 1: \d, 2: \d\}", out)
    for _ in range(2):  # the reset at its end lets a second run read the same again
        out = run([sys.executable, "-c", groups])
        assert "b'3 apples'" in out
        assert out.count("partition=") == out.count("): 0") == 3


def test_the_page_on_groups(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "groups.md").read_text()
    [program] = blocks("python", page)
    out = run([sys.executable, "-c", program.replace("/tmp/offsetlog-groups", str(tmp_path))])
    assert "b'29'" in out


def test_the_same_without_a_program(tmp_path: Path) -> None:
    [script] = [text for text in blocks("sh") if "OFFSETLOG_ROOT" in text]
    out = run(["bash", "-euo", "pipefail"], script.replace("/tmp/offsetlog-shell", str(tmp_path)))
    assert '"value": "3 apples"' in out or '"value":"3 apples"' in out
    assert sum(int(n) for n in re.findall(r"^orders:\d:(\d+)$", out, flags=re.MULTILINE)) == 2


@pytest.mark.parametrize("target", re.findall(r"\]\((?!http)([^)#]+)\)", README))
def test_links_point_to_files(target: str) -> None:
    assert (ROOT / target).exists()


def test_the_import_is_light() -> None:
    """No Arrow, no filesystem, no Spark until they are needed."""
    heavy = "pyarrow fsspec numpy deltalake pyspark pandas click rich s3fs"
    code = f"import sys, offsetlog; print([m for m in {heavy.split()!r} if m in sys.modules])"
    assert run([sys.executable, "-c", code]).strip() == "[]"


def test_settings_are_the_ones_that_exist() -> None:
    from offsetlog.values import CONFIG_KEYS

    [line] = [line for line in README.splitlines() if line.startswith("Settings by Kafka's names")]
    named = set(re.findall(r"`([a-z.]+)`", line))
    assert named - {"."} == set(CONFIG_KEYS)


def test_the_figures_are_those_that_were_measured() -> None:
    """``python -m bench.readme`` writes the table; here it only looks."""
    run([sys.executable, "-m", "bench.readme", "--check"])
