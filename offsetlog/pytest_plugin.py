"""The pytest fixtures that come with an installed offsetlog: a user's job is tested on a log of its
own, with no broker and nothing to start.

pytest loads this module in every run, also where nobody uses it, so:

1. It imports nothing heavy (no Arrow, no Spark), changes no setting and adds no option.
2. Each test gets another root, so tests may run in any order and in several processes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import offsetlog


@pytest.fixture
def offsetlog_root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a fresh folder on the local disk, for a log."""
    return str(tmp_path_factory.mktemp("offsetlog"))


@pytest.fixture
def offsetlog_log(offsetlog_root: str) -> Iterator[offsetlog.Log]:
    """The log at ``offsetlog_root``, open until the test ends."""
    with offsetlog.open(offsetlog_root) as log:
        yield log
