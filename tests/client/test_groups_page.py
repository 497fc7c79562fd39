"""The page on groups: its program runs, and the settings that it names are there."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

from offsetlog.client.consumer import Consumer

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "groups.md").read_text()


def test_the_program_runs(tmp_path):
    [program] = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    program = program.replace("/tmp/offsetlog-groups", str(tmp_path / "log"))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "dry run" in done.stdout and "b'0'" in done.stdout


def test_settings_are_the_ones_that_exist_with_their_defaults():
    known = inspect.signature(Consumer.__init__).parameters
    named = re.findall(r"`([a-z_]+)` \((\d+)\)", PAGE)
    assert len(named) == 2
    for name, value in named:
        assert known[name].default == int(value)
    for name in ("on_assign", "on_revoke", "on_lost", "auto_offset_reset"):
        assert f"`{name}`" in PAGE and name in known
