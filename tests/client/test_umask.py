"""Programs of one user on one log: some with a umask that keeps their files private."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import environment

PRIVATE, USUAL = 0o077, 0o022
PROGRAM = """
import json, sys
import offsetlog
from offsetlog.client import running_pages

name, root = sys.argv[1:]
with offsetlog.open(root) as log:
    if name == "a":
        log.create_topic("orders", partitions=2, config={"table.format": "delta"})
    with log.producer() as producer:
        for number in range(100):
            value = f"{name}-{number}".encode() + bytes(5_000)
            producer.send("orders", value, partition=number % 2)
    with log.consumer("billing", ["orders"], auto_offset_reset="earliest") as consumer:
        rows = []
        while batch := consumer.poll(0.5 if not rows else 0.0):
            rows += batch
        consumer.commit()
    log.maintain(grace_ms=0)
    note = running_pages.announce(log.root_id, f"http://127.0.0.1:1/{name}/")
    print(json.dumps({
        "read": [row.value.rstrip(bytes(1)).decode() for row in rows],
        "lag": sum(log.group("billing").lag().values()),
        "faults": [fault for report in log.verify() for fault in report.faults],
        "pages": running_pages.addresses(log.root_id), "note": str(note),
    }))
"""


def run(name: str, root: Path, umask: int) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name, str(root)], umask=umask, timeout=120, check=False,
        capture_output=True, text=True, env=environment(XDG_RUNTIME_DIR=str(root.parent / "run")),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def rights(root: Path) -> dict[Path, int]:
    return {path: path.stat().st_mode & 0o777 for path in [root, *root.rglob("*")]}


@pytest.mark.parametrize("first", [PRIVATE, USUAL], ids=["077", "022"])
def test_two_programs_of_a_user_share_a_log_whatever_their_umasks(
    tmp_path: Path, first: int
) -> None:
    root = tmp_path / "log"
    for name, umask in (("a", first), ("b", PRIVATE + USUAL - first), ("c", first)):
        before = rights(root) if root.exists() else {}
        told = run(name, root, umask)
        sent = [f"{name}-{number}" for number in range(100)]
        assert sorted(told["read"]) == sorted(sent)
        assert (told["lag"], told["faults"]) == (0, [])
        assert told["pages"] == [f"http://127.0.0.1:1/{name}/"]
        assert Path(told["note"]).stat().st_mode & 0o777 == 0o600
        after = rights(root)
        made = {path for path in after if path not in before}
        assert len(made) > 10
        for path, found in after.items():
            # All rights that the umask leaves; only notes, which are replaced, change them.
            own = (0o777 if path.is_dir() else 0o666) & ~umask
            assert found == own or (path not in made and found == before[path]), path
        replaced = {path for path in after if after[path] != before.get(path, after[path])}
        assert not {path for path in replaced if path.suffix not in ("", ".json")}, replaced
