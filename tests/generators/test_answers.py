"""The generator ``answers`` is as tests/README.md says, and it counts what it has met."""

from __future__ import annotations

import re
from pathlib import Path

from tests.generators.answers import PLANTED, told
from tests.generators.answers.spark_ways import SPARK_WAYS
from tests.generators.answers.ways import WAYS
from tests.generators.answers.world import TRAITS
from tests.generators.registry import WITH

README = (Path(__file__).parents[1] / "README.md").read_text()


def rows(title: str) -> list[str]:
    """The first cells of the table below a line."""
    _, _, below = README.partition(f"| {title} | ")
    return re.findall(r"^\| ([^|]+) \|", below.partition("\n\n")[0], re.MULTILINE)


def test_the_readme_names_each_state_and_each_way():
    assert rows("state") == list(TRAITS)
    assert rows("way to ask") == [*WAYS, *SPARK_WAYS]


def test_the_readme_names_what_is_planted():
    below = " ".join(README.partition("## One oracle")[2].split())
    for name in PLANTED:
        assert f"*{name}*" in below, name


def test_the_table_counts_pairs():
    lines = told({f"entries{WITH}poll": 7, f"gaps{WITH}page": 3}).splitlines()
    [poll] = (line for line in lines if line.startswith("poll "))
    assert poll.split()[1:] == ["7" if trait == "entries" else "0" for trait in TRAITS]
    [consumer] = (line for line in lines if line.startswith("a running consumer"))
    assert consumer.split()[3] == "."
    assert sum("entries" in line for line in lines) == 1
