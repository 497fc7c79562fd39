"""The turns of tests that run in several processes."""

from __future__ import annotations

import select
import subprocess
import sys
from pathlib import Path

from tests.servers.process import ROOT
from tests.turns import Turns

TAKE = """
import sys
from pathlib import Path
from tests.turns import Turns
with Turns(Path(sys.argv[1])).turn(alone=sys.argv[2] == "alone"):
    print("begins", flush=True)
    sys.stdin.read()
"""


def take(path: Path, how: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", TAKE, str(path), how]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT)


def begins(child: subprocess.Popen[str]) -> bool:
    assert child.stdout is not None
    return child.stdout.readline() == "begins\n"


def waits(child: subprocess.Popen[str]) -> bool:
    """Whether it is still waiting for its turn."""
    assert child.stdout is not None
    return not select.select([child.stdout], [], [], 0.5)[0]


def ends(child: subprocess.Popen[str]) -> None:
    child.communicate(timeout=30)
    assert child.returncode == 0


def test_a_test_that_is_alone_is_alone_and_nobody_overtakes_it(tmp_path: Path) -> None:
    path = tmp_path / "turns"
    one, two = take(path, "with others"), take(path, "with others")
    assert begins(one) and begins(two)
    alone = take(path, "alone")
    ends(one)
    assert waits(alone)
    late = take(path, "with others")
    assert waits(late)
    ends(two)
    assert begins(alone)
    assert waits(late)
    ends(alone)
    assert begins(late)
    ends(late)


def test_who_is_killed_blocks_nobody(tmp_path: Path) -> None:
    path = tmp_path / "turns"
    alone = take(path, "alone")
    assert begins(alone)
    alone.kill()
    alone.communicate(timeout=30)
    with Turns(path).turn(alone=True):
        pass
