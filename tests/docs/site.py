"""What a built site consists of, read from its files: links, and what a page fetches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {"img": "src", "script": "src", "link": "href", "source": "src", "iframe": "src"}
UNFETCHED_LINKS = {"index", "search", "next", "prev", "author", "canonical", "help"}


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value is not None}
        self.anchors.update(filter(None, (values.get("id"), values.get("name"))))
        target = values.get(FETCHED.get(tag, "href"))
        if target is None or target.startswith("data:"):
            return
        fetched = tag in FETCHED and values.get("rel") not in UNFETCHED_LINKS
        (self.fetched if fetched else self.links).append(target)


@cache
def page(file: Path) -> Page:
    return Page(file.read_text())


def pages(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


def broken_links(site: Path) -> Iterator[str]:
    """Links to files that are not there, and to places that a page does not have."""
    for file in pages(site):
        for link in [*page(file).links, *page(file).fetched]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if not target.is_file():
                yield f"{file.relative_to(site)}: {link} is not there"
            elif parts.fragment and unquote(parts.fragment) not in page(target).anchors:
                yield f"{file.relative_to(site)}: {link} has no such place"


def fetched_from_elsewhere(site: Path) -> Iterator[str]:
    """What a browser would fetch from another host: scripts, styles, fonts, pictures."""
    for file in pages(site):
        for link in page(file).fetched:
            if urlsplit(link).netloc:
                yield f"{file.relative_to(site)}: {link}"
    for file in site.rglob("*.css"):
        for link in re.findall(
            r"(?:url\(|@import\s+)['\"]?((?:https?:)?//[^'\")]+)", file.read_text()
        ):
            yield f"{file.relative_to(site)}: {link}"
