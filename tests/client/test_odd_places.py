"""Odd addresses of a log and of its groups."""

from __future__ import annotations

from pathlib import Path

import pytest

import offsetlog
from offsetlog.errors import InvalidRequestError


@pytest.mark.parametrize(
    "name", ["with%20x", "a[x]", "back\\slash", "sp ace", "q?x", "h#x", "üñ", "a%b", "{x}", "*"]
)
def test_every_folder_name_holds_topics_and_groups(name: str, tmp_path: Path) -> None:
    with offsetlog.open(str(tmp_path / name)) as log:
        log.create_topic("t")
        with log.producer() as producer:
            producer.send("t", b"x")
        with log.consumer("g", ["t"], auto_offset_reset="earliest") as consumer:
            assert len(consumer.poll(timeout=10)) == 1
            consumer.commit()
        log.maintain()
        assert log.groups() == ["g"] and log.group("g").lag() == {("t", 0): 0}
        assert all(report.sound for report in log.verify())
    assert {path.name for path in tmp_path.iterdir()} == {name}


@pytest.mark.parametrize("inside", ["a.jpg", "t"])
def test_a_place_that_is_refused_for_the_offsets_table_keeps_nothing(
    inside: str, tmp_path: Path
) -> None:
    root, place = tmp_path / "log", tmp_path / "pictures"
    place.mkdir()
    (place / "a.jpg").write_bytes(b"x")
    place = place if inside == "a.jpg" else root / "t"
    with offsetlog.open(str(root), offsets_table=str(place)) as log:
        log.create_topic("t")
        before = sorted(place.rglob("*"))
        with pytest.raises(InvalidRequestError, match="empty place"):
            log.consumer("g", ["t"])
        assert sorted(place.rglob("*")) == before
