"""tests/README.md names the planted bugs, and says how far each is."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from tests import planted
from tests.planted import BEGINS, ENDS, Histories, all_histories, faults, seeds_for, stated


def test_the_table_names_each_planted_bug_and_each_is_near():
    assert not faults(stated())
    names = [(kind.name, bug) for kind in all_histories().values() for bug in kind.bugs]
    assert list(stated()) == names


def test_names_that_differ_and_bugs_that_are_far_are_told():
    kinds = all_histories()
    table = {(kind.name, bug): (1, 1, 1) for kind in kinds.values() for bug in kind.bugs}
    gone, far, lost, *_ = table
    margin = kinds[far[0]].margin
    del table[gone]
    table |= {far: (1, margin + 1, margin), lost: (1, 1, None), ("sizes", "none such"): (1, 1, 1)}
    told = faults(table)
    assert len(told) == 4
    assert told[0].startswith(": ".join(gone)) and told[1].startswith("sizes: none such")
    assert far[1] in told[2] and f"not found in {margin} histories from seed 301" in told[2]
    assert lost[1] in told[3] and "from seed 601" in told[3]


@pytest.fixture
def some(monkeypatch, tmp_path):
    """Histories with a bug that is found after 3, 2 and 9 of 50, and a README.md of their own."""
    fails = {3, 302, 609}
    kind = Histories("some", 50, ("near",), lambda bug: nullcontext(), fails.__contains__)
    monkeypatch.setattr(planted, "all_histories", lambda: {"some": kind})
    readme = tmp_path / "README.md"
    readme.write_text(
        f"before\n{BEGINS}\n| a |\n| - |\n| some | gone | 50 | 1 | 1 | 1 |\n{ENDS}\nafter"
    )
    monkeypatch.setattr(planted, "README", readme)
    return kind, fails


def test_what_is_measured_is_written_and_looked_at_first(some, capsys):
    kind, fails = some
    assert planted.main(["--check"]) == 1
    assert "some: gone: is planted no more" in capsys.readouterr().out
    assert "gone" in planted.README.read_text(), "a check writes nothing"
    assert planted.main([]) == 0
    text = planted.README.read_text()
    assert "| some | near | 50 | 3 | 2 | 9 |" in text and "gone" not in text
    assert text.startswith("before\n") and text.endswith("\nafter")
    assert seeds_for(kind, "near", 5) == [3, 1, 2, 4, 5]
    assert planted.main(["--check"]) == 0
    fails.remove(609)
    fails.add(611)
    assert planted.main(["--check"]) == 1
    assert "some: near: not found in 10 histories from seed 601 on" in capsys.readouterr().out
    fails.clear()
    assert planted.main(["--only", "near"]) == 1
    assert "| some | near | 50 | none | none | none |" in planted.README.read_text()
