"""The protocol holds in every state of small worlds, and no rule of it can be spared."""

from __future__ import annotations

import time

import pytest

from tests.model.explore import Explored, explore
from tests.model.protocol import Model
from tests.model.settings import ALL, RULES

EXPLORED: dict[str, Explored] = {}


@pytest.mark.parametrize("setting", ALL, ids=lambda s: s.name)
def test_every_promise_holds_in_every_state(setting):
    began = time.process_time()
    found = explore(Model(setting))
    EXPLORED[setting.name] = found
    print(
        f"{setting.name}: {found.states:,} states, {found.actions:,} actions, "
        f"up to {found.deepest} deep, {time.process_time() - began:.1f} s"
    )
    assert not found.story, "\n".join(found.story)
    assert found.states > 500, "the world is too small to say anything"


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_a_promise_is_broken(rule):
    found = explore(Model(RULES[rule], without=rule))
    print("\n".join(found.story))
    assert found.story, f"nothing was broken in {found.states:,} states without {rule!r}"
    assert "PROMISE" in found.story[-1]
