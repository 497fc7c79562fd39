"""Small files that would take gigabytes: memory is measured from outside."""

from __future__ import annotations

import json
import re
import subprocess
import sys

from offsetlog.core import strict_json
from offsetlog.format import delta_log, entries, segments, snapshots, thrift
from offsetlog.format import facts_arrow as fact_rows
from tests.format.bombs import MIB
from tests.servers.process import ROOT

MOST = 320 * MIB
"""What any of them may take: a JSON text of 64 MiB is the largest that is parsed."""


def test_no_small_file_takes_much_memory():
    done = subprocess.run(
        [sys.executable, "-m", "tests.format.bombs"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    answers = {
        name: (answer, size) for name, answer, size in map(json.loads, done.stdout.split("\n")[:-1])
    }
    assert done.returncode == 0 and len(answers) >= 21, done.stderr[-2000:]
    assert {name: size for name, (_, size) in answers.items() if size > MOST} == {}
    read = {name for name, (answer, _) in answers.items() if answer.startswith("read: ")}
    # The dictionary of a table's file is never unfolded; a checkpoint is a cache.
    assert read == {"facts with a dictionary", "a checkpoint of groups"}
    assert answers["a checkpoint of groups"][0] == "read: None"
    others = {name: answer for name, (answer, _) in answers.items() if name not in read}
    assert all(answer.startswith("CorruptLogError: ") for answer in others.values()), others


def test_the_budget_is_the_one_that_security_md_states():
    stated = {}
    _, _, table = (ROOT / "SECURITY.md").read_text().partition("| file | fetched |")
    for line in f"| file | fetched |{table}".partition("\n\n")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 3:
            numbers = (re.findall(r"\d[\d,]*", cell) for cell in cells)
            stated[cells[0].split(",")[0]] = [
                int(n.replace(",", "")) for one in numbers for n in one
            ]
    table, log = fact_rows, delta_log
    assert stated == {
        "file": [],
        "entry": [entries.MAX_ENTRY_BYTES // MIB] * 2,
        "segment": [segments.UNFOLDS_TO, segments.MAX_ROW_GROUP_BYTES // MIB],
        "snapshot": [snapshots.MAX_SNAPSHOT_BYTES // MIB] * 2,
        "leaf of the index": [snapshots.MAX_LEAF_BYTES // MIB] * 2,
        "JSON text": [strict_json.MAX_BYTES // MIB, strict_json.MAX_VALUES],
        "Delta checkpoint": [
            log.MOST_CHECKPOINT_BYTES // MIB, log.MOST_UNFOLDED // MIB, log.MOST_ACTIONS
        ],
        "file of the offsets table": [
            table.MOST_FILE_BYTES // MIB, table.MOST_UNFOLDED // MIB, table.MOST_ROWS,
            table.ROWS_OF_A_BYTE,
        ],
        "checkpoint of groups": [table.MOST_CHECKPOINT_BYTES // MIB, table.MOST_VALUES],
        "the footer of any of them": [thrift.MAX_ELEMENTS],
    }  # fmt: skip
    assert log.MOST_LOG_BYTES == strict_json.MAX_BYTES
