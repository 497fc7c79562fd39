"""Completion: the scripts are ones that their shells take, and the words are right."""

from __future__ import annotations

import subprocess

import pytest

from tests.cli.shell import PROGRAM, environment, offsetlog


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_calls_back(shell):
    result = offsetlog("completion", shell)
    assert (result.status, result.err) == (0, "")
    assert f"_OFFSETLOG_COMPLETE={shell}_complete" in result.text


def test_bash_takes_its_script():
    script = offsetlog("completion", "bash").out
    done = subprocess.run(
        ["bash", "-euc", script.decode() + "\ncomplete -p offsetlog"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "_offsetlog_completion" in done.stdout


def complete(*words):
    """What bash would be told for the last of the words."""
    done = subprocess.run(
        PROGRAM, capture_output=True, text=True, timeout=20, check=False,
        env=environment(
            _OFFSETLOG_COMPLETE="bash_complete",
            COMP_WORDS=" ".join(("offsetlog", *words)),
            COMP_CWORD=str(len(words)),
        ),
    )  # fmt: skip
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_words(orders):
    assert complete("con") == ["consume"]
    assert complete("topics", "de") == ["delete", "describe"]
    assert complete("consume", "--fo") == ["--follow"]
    assert "--root" in complete("consume", "--")
    assert complete("consume", "or") == ["orders"]
    assert complete("topics", "describe", "") == ["orders"]
    assert complete("completion", "z") == ["zsh"]


def test_no_root_completes_to_nothing(place):
    assert complete("consume", "or") == []
    assert complete("--root", "nosuch://x", "consume", "or") == []
