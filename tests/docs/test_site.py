"""The site is built strictly, each of its links leads somewhere, it needs no other host, and a
browser shows each page on a narrow and on a wide screen."""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.site import broken_links, fetched_from_elsewhere, pages
from tests.notebooks import NOTEBOOKS
from tests.pages import PAGES, ROOT
from tests.servers import chromium

WIDTHS = {"narrow": 360, "wide": 1400}
# Wider than the screen, and neither scrolls by itself nor is in something smaller that does: then
# the whole page would have to be moved to read its lines.
TOO_WIDE = """
() => [...document.querySelectorAll('article *')].filter(element => {
  if (element.getBoundingClientRect().right <= innerWidth + 1) return false;
  for (let one = element; one.tagName !== 'ARTICLE'; one = one.parentElement)
    if (['auto', 'scroll'].includes(getComputedStyle(one).overflowX)) return false;
  return true;
}).map(one => `${one.tagName} ${one.className} ${one.textContent.trim().slice(0, 40)}`)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As ``make docs`` builds it, but where a warning is an error."""
    folder = tmp_path_factory.mktemp("docs")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html",
         "-c", "docs", "-d", folder / "doctrees", ".", folder / "html"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium.running() as browser:
        yield browser


def test_each_page_and_notebook_is_there(site: Path) -> None:
    for file in [*PAGES, *NOTEBOOKS, ROOT / "offsetlog" / "format" / "SPEC.md"]:
        assert (site / file.relative_to(ROOT).with_suffix(".html")).exists(), file
    assert (site / "index.html").read_text() == (site / "README.html").read_text()
    assert list(site.glob("_images/*.png"))


def test_no_link_is_broken(site: Path) -> None:
    assert not list(broken_links(site))


def test_it_needs_no_other_host(site: Path) -> None:
    assert not list(fetched_from_elsewhere(site))


def test_what_is_broken_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<link rel="stylesheet" href="s.css"><script src="https://cdn.example/x.js"></script>'
        '<h1 id="top">a</h1><a href="#top">1</a><a href="#gone">2</a><a href="b.html">3</a>'
        '<a href="a.html#top">4</a><a href="a.html#away">5</a><a href="https://x.example">6</a>'
    )
    (tmp_path / "s.css").write_text("@font-face { src: url('//fonts.example/f.woff2') }")
    assert [line.split()[1] for line in broken_links(tmp_path)] == [
        "#gone",
        "b.html",
        "a.html#away",
    ]
    assert [line.split()[1] for line in fetched_from_elsewhere(tmp_path)] == [
        "https://cdn.example/x.js",
        "//fonts.example/f.woff2",
    ]


def names(site: Path) -> set[str]:
    """What other sites can link to: the names of the reference."""
    inventory = zlib.decompress((site / "objects.inv").read_bytes().split(b"zlib.\n", 1)[1])
    return {line.split()[0] for line in inventory.decode().splitlines()}


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    import offsetlog
    import offsetlog.metrics
    import offsetlog.spark
    import offsetlog.testing

    for module in (offsetlog, offsetlog.metrics, offsetlog.spark, offsetlog.testing):
        public = {f"{module.__name__}.{name}" for name in module.__all__ if name[0] != "_"}
        assert public <= names(site), public - names(site)


def test_every_public_method_is_in_the_reference(site: Path) -> None:
    """A new one belongs to docs/api.md, or to those here that only this package calls."""
    import offsetlog

    inside = {
        "Log.url", "Log.purge_plan", "Log.open_topic", "Log.group_commit", "Log.offsets_table",
        "Log.heartbeats", "Log.check_open", "Log.keep_to_root", "Consumer.followed_reset",
        "Consumer.begin", "Consumer.out_of_range", "Group.reset_topics",
    }  # fmt: skip
    kinds = (
        offsetlog.Log,
        offsetlog.Producer,
        offsetlog.Consumer,
        offsetlog.Topic,
        offsetlog.Group,
    )
    public = {f"{kind.__name__}.{name}" for kind in kinds for name in vars(kind) if name[0] != "_"}
    shown = {name.removeprefix("offsetlog.") for name in names(site)}
    assert public - shown == inside


@pytest.mark.parametrize("width", WIDTHS)
def test_a_browser_shows_each_page(site: Path, browser: Any, width: str) -> None:
    """Nothing is wider than the screen, and no page says anything on the console."""
    wrong: list[str] = []
    page = browser.new_page(viewport={"width": WIDTHS[width], "height": 900})
    page.on("console", lambda message: wrong.append(f"{page.url}: {message.text}"))
    page.on("pageerror", lambda error: wrong.append(f"{page.url}: {error}"))
    page.on("requestfailed", lambda request: wrong.append(f"{page.url}: no {request.url}"))
    page.on("request", lambda request: request.url.startswith("http") and wrong.append(request.url))
    for file in pages(site):
        page.goto(file.as_uri())
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            wrong.append(f"{file.name} is wider than the screen")
        wrong += [f"{file.name}: {element}" for element in page.evaluate(TOO_WIDE)]
    page.close()
    assert not wrong, "\n".join(wrong)


def test_the_search_finds_without_a_server(site: Path, browser: Any) -> None:
    page = browser.new_page()
    page.goto(f"{(site / 'search.html').as_uri()}?q=maxBytesPerTrigger")
    page.wait_for_selector("#search-results li")
    assert "With Spark" in page.inner_text("#search-results")
    page.close()
