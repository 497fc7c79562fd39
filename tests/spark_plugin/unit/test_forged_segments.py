"""Both readers of segments, without Spark: of what nobody of ours wrote they give the same rows or
none, and neither takes more memory or time than SECURITY.md says.

What the JVM leaves, Python reads on from where it ended: so the JVM may refuse what Python takes,
and never the other way round."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.format import forged_segments
from tests.format.forged_segments import COLUMNS, Forged, by_python, extremes, mutated, sound
from tests.spark_plugin.java.decoder import Answer, Decoder, decoder

pytestmark = pytest.mark.skipif(shutil.which("javac") is None, reason="there is no javac")
MUTATIONS = 600
MOST_SECONDS = 10


@pytest.fixture(scope="module")
def jvm(jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Decoder]:
    with decoder(jar, tmp_path_factory.mktemp("classes")) as process:
        yield process


def by_jvm(
    jvm: Decoder,
    place: Path,
    forged: Forged,
    columns: tuple[str, ...] = COLUMNS,
    start: int = 0,
    end: int = 2**62,
) -> Answer:
    path = place / "segment.parquet"
    path.write_bytes(forged.data)
    low, high = max(start, forged.base), min(end, forged.end)
    return jvm.rows(path, columns, low, high, forged.base, forged.end, forged.records,
                    len(forged.data), forged.foot, forged.sum)  # fmt: skip


def judged(jvm: Decoder, place: Path, forged: Forged, *of: object) -> str:
    """What both made of it, which fits together."""
    python = by_python(forged, *of)  # type: ignore[arg-type]
    answer = by_jvm(jvm, place, forged, *of)  # type: ignore[arg-type]
    # A fault that was met where memory was taken, or by chance, is a bound that is missing.
    assert "decoded here" not in answer.end, (forged.what, answer.end)
    if answer.end == "end":
        assert answer.rows == python, forged.what
    elif python is not None:
        so_far = [row for row in python if int(row.split()[0]) < answer.reached]
        assert answer.rows == so_far, forged.what
    return f"{'read' if python is not None else 'refused'}, {answer.end == 'end'}"


def test_both_come_to_the_same(jvm: Decoder, tmp_path: Path) -> None:
    chance, found = random.Random(7), Counter[str]()
    for turn in range(MUTATIONS):
        whole = sound(chance)
        if turn % 20 == 0:
            assert judged(jvm, tmp_path, whole) == "read, True"
        forged = mutated(chance, whole)
        found[judged(jvm, tmp_path, forged)] += 1
        low, high = sorted(chance.sample(range(38, 60), 2))
        if by_python(forged) is not None and max(low, forged.base) < min(high, forged.end):
            judged(jvm, tmp_path, forged, ("value", "timestamp"), low, high)
    # What is read at all is mostly read by both.
    assert found["refused, False"] > MUTATIONS / 3
    assert found["read, True"] > 2 * found["read, False"] > 0


def test_what_is_far_beyond_all_bounds_is_refused_by_both(jvm: Decoder, tmp_path: Path) -> None:
    for forged in extremes():
        began = time.monotonic()
        answer = by_jvm(jvm, tmp_path, forged)
        # Rows of a row group before the one that is wrong may have been given.
        assert answer.end != "end" and len(answer.rows) < forged.records, forged.what
        assert "decoded here" not in answer.end, (forged.what, answer.end)
        assert time.monotonic() - began < MOST_SECONDS, forged.what


@pytest.mark.parametrize("kind", ["a pipe", "a socket", "a folder", "a link", "a link to a pipe"])
def test_what_is_no_file_is_not_opened(jvm: Decoder, tmp_path: Path, kind: str) -> None:
    forged = sound(random.Random(1))
    path, aside = tmp_path / "segment.parquet", tmp_path / "aside"
    aside.write_bytes(forged.data)
    if kind == "a folder":
        path.mkdir()
    elif kind == "a link":
        path.symlink_to(aside)
    else:
        where = aside if kind == "a link to a pipe" else path
        where.unlink(missing_ok=True)
        os.mknod(where, 0o600 | (0o140000 if kind == "a socket" else 0o10000))
    if kind == "a link to a pipe":
        path.symlink_to(aside)
    answer = jvm.rows(path, COLUMNS, forged.base, forged.end, forged.base, forged.end,
                      forged.records, len(forged.data), forged.foot, forged.sum)  # fmt: skip
    assert answer.rows == [] and answer.end != "end"


def test_a_range_of_a_segment_with_gaps(jvm: Decoder, tmp_path: Path) -> None:
    """Any range of it, and by any row groups: the offsets say what lies in it."""
    table = forged_segments.table_of(12, True)
    for group in (1, 4, 100):
        whole = forged_segments.encoded(table, "zstd", group)
        for low in range(whole.base, whole.end, 3):
            for high in range(low + 1, whole.end + 1, 4):
                assert judged(jvm, tmp_path, whole, COLUMNS, low, high) == "read, True"
