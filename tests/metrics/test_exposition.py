"""The text of a scrape: sound in both of Prometheus' formats, whatever the names are."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetlog.metrics import exposition
from offsetlog.metrics.exposition import to_text
from offsetlog.metrics.families import FAMILIES, GROUP_LAG, GROUP_MEMBERS, Family, Sample
from tests.metrics.scrapes import committed, parsed, value, written
from tests.servers import promtool

pytestmark = pytest.mark.root_in("local", "memory")

HOSTILE = [
    'a"b', "a\\", "a\\n", "a\nb", 'x"} 1\n# EOF\ny{z="', "{}", "a,b=c", "a\rb", "\x00\x1b[2J", "é",
    "\u202e", "\ud800", "", " ", "#", "a" * 300, "\u2028", "\x85", "\\\\n", '\\"',
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_text_from_outside_stays_within_its_quotes(name: str) -> None:
    labels = (name, "orders", "0")
    series = parsed(to_text({GROUP_LAG: [Sample(labels, 7)], GROUP_MEMBERS: [Sample((name,), 2)]}))
    shown = name.encode("utf-8", "replace").decode()
    assert len(series) == 2
    assert value(series, GROUP_LAG.name, consumergroup=shown, topic="orders", partition=0) == 7
    assert value(series, GROUP_MEMBERS.name, consumergroup=shown) == 2


@given(st.lists(st.text(alphabet=st.characters(codec="utf-8")), min_size=2, unique=True))
def test_names_that_differ_are_series_that_differ(names: list[str]) -> None:
    samples = [Sample((name,), n) for n, name in enumerate(names)]
    series = parsed(to_text({GROUP_MEMBERS: samples}))
    assert series == {
        (GROUP_MEMBERS.name, (("consumergroup", name),)): n for n, name in enumerate(names)
    }


@given(st.one_of(st.integers(-1, 2**63), st.floats(0, 1e12)))
def test_a_value_is_read_back_as_it_was(number: float) -> None:
    series = parsed(to_text({GROUP_MEMBERS: [Sample(("g",), number)]}))
    assert [float(seen) for seen in series.values()] == [float(number)]


def test_each_name_is_legal_and_says_what_it_is() -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    for family in FAMILIES:
        assert family.name.startswith(("kafka_", "offsetlog_"))
        assert "\n" not in family.help and "\\" not in family.help and '"' not in family.help
        assert family.help.endswith(".")


def test_promtool_finds_nothing(log) -> None:
    """``promtool check metrics``: the format, and Prometheus' rules for names."""
    program = promtool.install()
    if program is None:
        pytest.skip("there is no promtool here, and none from Debian")
    log.create_topic("orders", partitions=2)
    written(log, "orders", 3)
    committed(log, "billing", {("orders", 0): 1})
    of_a_query = Family("offsetlog_query_lag", "Help.", ("query", "topic", "partition"))
    more = to_text({of_a_query: [Sample(("q", "t", "0"), 1.5)]})
    text = exposition(log).removesuffix("# EOF\n") + more
    done = subprocess.run(
        [program, "check", "metrics", "--extended"],
        input=text, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "kafka_consumergroup_lag" in done.stdout
