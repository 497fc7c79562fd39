"""Segments that nobody of ours wrote, under sums that are right, asked of both readers.

A history changes sound segments, with and without gaps, in any codec: bytes, pages, their headers,
footers, ranges, times and offsets; or takes an extreme that was made by hand. Python's reader gives
rows whose offsets ascend in the range that the log says, or an error of ours. In a long run the
JVM's reader is asked beside it, without Spark: what it gives, Python gives.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offsetlog.format import record_schema, thrift
from offsetlog.format.segments import OpenSegment
from offsetlog.values import MAX_OFFSET
from tests.format import forged_segments
from tests.format.forged_segments import COLUMNS, Forged, by_python, mutated, sound
from tests.generators.registry import OPERATIONS, Bug
from tests.servers.process import ROOT
from tests.simulation.planting import Patch, patched

if TYPE_CHECKING:
    from tests.spark_plugin.java.decoder import Decoder

CASES = 25
_beside: list[Decoder] = []


@contextmanager
def surroundings() -> Iterator[None]:
    """The JVM's reader, where there is a compiler."""
    if shutil.which("javac") is None:
        yield
        return
    from tests.spark_plugin.java.decoder import decoder

    build = ROOT / "spark_plugin" / "java" / "build.py"
    done = subprocess.run([sys.executable, build], check=True, capture_output=True, text=True)
    with (
        tempfile.TemporaryDirectory() as classes,
        decoder(Path(done.stdout.strip()), Path(classes)) as process,
    ):
        _beside.append(process)
        try:
            yield
        finally:
            _beside.clear()


def history(seed: int, folder: Path) -> Counter[str]:
    chance, counts = random.Random(seed), Counter[str]()
    by_hand = list(forged_segments.small_extremes()) if seed % 4 == 0 else []
    for _ in range(CASES):
        forged = chance.choice(by_hand) if by_hand else mutated(chance, sound(chance))
        judge(forged, folder, counts)
        low, high = sorted(chance.sample(range(38, 60), 2))
        if max(low, forged.base) < min(high, forged.end):
            judge(forged, folder, counts, ("value", "timestamp"), low, high)
    return counts


def judge(
    forged: Forged,
    folder: Path,
    counts: Counter[str],
    columns: tuple[str, ...] = COLUMNS,
    start: int = 0,
    end: int = 2**62,
) -> None:
    counts[OPERATIONS] += 1
    rows = by_python(forged, columns, start, end)
    counts["refused" if rows is None else "read"] += 1
    low, high = max(start, forged.base), min(end, forged.end)
    if rows is not None:
        offsets = [low - 1, *(int(row.split()[0]) for row in rows), high]
        assert all(one < other for one, other in pairwise(offsets)), (forged.what, offsets)
    for jvm in _beside:
        path = folder / "segment.parquet"
        path.write_bytes(forged.data)
        answer = jvm.rows(path, columns, low, high, forged.base, forged.end, forged.records,
                          len(forged.data), forged.foot, forged.sum)  # fmt: skip
        counts["asked of the JVM"] += 1
        assert "decoded here" not in answer.end, (forged.what, answer.end)
        if answer.end == "end":
            whole = (start, end) == (0, 2**62)
            # Of a part the JVM decodes no page that has none of it.
            assert answer.rows == rows or (rows is None and not whole), forged.what


# --- bugs that are planted -----------------------------------------------------------------


def _believed(self: OpenSegment, i: int, base: int, end: int, table: Any = None) -> Any:
    return (self._group(i, ("offset",)) if table is None else table).column("offset").to_numpy()


def _bug(*patches: Patch) -> Bug:
    return Bug(lambda: patched(patches))


PLANTED = {
    "offsets in gaps are believed": _bug(
        (OpenSegment, "offsets", _believed),
        (OpenSegment, "last_offsets", lambda self, base, end: [MAX_OFFSET] * len(self.groups)),
    ),
    "lists have no depth": _bug((thrift, "_check_depth", lambda depth: None)),
    "times may be null": _bug((record_schema, "check_values", lambda table, name: table)),
}
