"""The checker of histories: each kind of fault is found where it is, and near misses are let be."""

from __future__ import annotations

import pytest

from offsetlog.testing import history
from offsetlog.testing.history.faults import KINDS
from tests.testing.cases import batches, groups, reads, writes

CASES = {**writes.CASES, **reads.CASES, **batches.CASES, **groups.CASES}


@pytest.mark.parametrize("name", CASES)
def test_what_is_there_is_found_and_nothing_else(name):
    kinds, settings_, told = CASES[name]
    faults = history.check(told.events, **settings_)
    assert {fault.kind for fault in faults} == kinds, history.tell(told.events, faults)


def test_every_kind_is_found_somewhere_and_has_a_near_miss():
    assert {kind for kinds, _, _ in CASES.values() for kind in kinds} == set(KINDS)
    assert sum(not kinds for kinds, _, _ in CASES.values()) > len(KINDS)
