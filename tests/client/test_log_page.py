"""``log.page()``: a picture for a notebook, and where a page runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import offsetlog
from offsetlog.client import running_pages
from tests.page.conftest import HOSTILE, fill
from tests.waiting import until


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    return tmp_path / "runtime" / "offsetlog" / "pages"


def test_it_is_a_picture_of_now(tmp_path: Path, notes: Path) -> None:
    with offsetlog.open(str(tmp_path / "log")) as log:
        fill(log)
        picture = log.page()
        html = picture._repr_html_()
        with log.producer() as producer:
            producer.send("orders", b"x")
        assert picture._repr_html_() == html and "91" in log.page()._repr_html_()
    assert "<td>orders</td>" in html and "<td>90</td>" in html and "<td>billing</td>" in html
    assert "<td>50</td>" in html and "offsetlog page</code> starts one" in html
    assert "<script" not in html and "http" not in html and HOSTILE not in html
    assert "2 topics, 1 groups" in repr(picture)


def test_much_is_shown_in_part(tmp_path: Path, notes: Path) -> None:
    with offsetlog.open(f"memory://{tmp_path.name}") as log:
        for number in range(60):
            log.create_topic(f"t{number:02}")
        html = log.page()._repr_html_()
    assert "t49" in html and "t50" not in html and "and 10 more topics" in html


def test_it_names_the_pages_that_run(tmp_path: Path, notes: Path) -> None:
    pytest.importorskip("starlette")
    from offsetlog.page.server import PageServer

    with offsetlog.open(str(tmp_path / "log")) as log:
        fill(log)
        with PageServer(log, port=0, allow_changes=True) as server:
            [note] = until(lambda: list(notes.glob("*.json")))
            assert note.stat().st_mode & 0o777 == 0o600
            picture = log.page()
            assert picture.addresses == (server.url,) and server.url in picture._repr_html_()
            assert "token" not in note.read_text() + picture._repr_html_()
        assert log.page().addresses == () and not list(notes.iterdir())


def test_notes_that_say_nothing_are_passed_over(notes: Path, monkeypatch) -> None:
    kept = running_pages.announce("root", "http://127.0.0.1:8900/")
    assert kept is not None and running_pages.addresses("root") == ["http://127.0.0.1:8900/"]
    assert running_pages.addresses("other") == []
    gone = {"url": "http://gone/", "pid": 2**22 + 1}
    wrong = [
        {"url": "javascript:1", "pid": os.getpid()}, {"url": "http://x/", "pid": "x"},
        {"url": "http://x/", "pid": -1}, {"url": "http://x/", "pid": 0}, {"url": "http://x/"},
        gone, [],
    ]  # fmt: skip
    for number, text in enumerate(["", "{", *map(json.dumps, wrong)]):
        (notes / f"root-{number}.json").write_text(text)
    assert running_pages.addresses("root") == ["http://127.0.0.1:8900/"]
    running_pages.withdraw(kept)
    running_pages.withdraw(kept)
    assert running_pages.addresses("root") == []
    notes.parent.parent.rename(notes.parents[2] / "away")
    (notes.parents[1]).write_text("a file where the folder would be")
    assert running_pages.announce("root", "http://x/") is None
    assert running_pages.addresses("root") == []
