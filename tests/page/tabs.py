"""A tab of a real browser on a page, which remembers everything that went wrong in it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from offsetlog.page.server import PageServer

TOO_WIDE = """
() => [...document.querySelectorAll('body *')].filter(element => {
  if (element.getBoundingClientRect().right <= innerWidth + 1) return false;
  for (let one = element; one !== document.body; one = one.parentElement)
    if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(one).overflowX)) return false;
  return !element.closest('.hidden-text, thead');
}).map(one => `${one.tagName} ${one.className} ${one.textContent.trim().slice(0, 40)}`)
"""


def axe_source() -> str:
    """The checker of accessibility, which lies in the package without being of use to Python."""
    spec = importlib.util.find_spec("axe_playwright_python")
    assert spec is not None and spec.origin is not None
    return (Path(spec.origin).parent / "axe.min.js").read_text()


class Tab:
    def __init__(self, page: Any, server: PageServer, expected: tuple[str, ...]) -> None:
        self.page = page
        self.server = server
        self.wrong: list[str] = []
        page.on("console", lambda message: self._note(message.text))
        page.on("pageerror", lambda error: self._note(f"{error}"))
        page.on("request", self._check_host)
        self._expected = expected

    def _note(self, text: str) -> None:
        if not any(part in text for part in self._expected):
            self.wrong.append(text)

    def _check_host(self, request: Any) -> None:
        if not request.url.startswith((self.server.url, "data:")):
            self.wrong.append(f"it asked {request.url}")

    def open(self, view: str = "") -> Any:
        """Go to a view, and wait until it is drawn."""
        self.page.goto(f"{self.server.url}{view}")
        self.page.wait_for_selector("main:not([aria-busy]) h1")
        return self.page

    def text(self, selector: str = "main") -> str:
        return str(self.page.inner_text(selector))

    def wait_for_text(self, text: str, selector: str = "main", timeout: float = 15_000) -> None:
        self.page.wait_for_function(
            "([selector, text]) => document.querySelector(selector)?.innerText.includes(text)",
            arg=[selector, text],
            timeout=timeout,
        )

    def violations(self) -> list[str]:
        """What axe has to say of the page as it is, by WCAG 2.2 AA."""
        if not self.page.evaluate("typeof axe === 'object'"):
            self.page.evaluate(axe_source())
        tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
        result = self.page.evaluate(
            "tags => axe.run(document, {runOnly: {type: 'tag', values: tags}})", tags
        )
        return [
            f"{one['id']} ({one['help']}): {[node['html'][:120] for node in one['nodes'][:3]]}"
            for one in result["violations"]
        ]

    def too_wide(self) -> list[str]:
        if self.page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            return ["the page itself", *self.page.evaluate(TOO_WIDE)]
        return list(self.page.evaluate(TOO_WIDE))


@contextmanager
def tab(
    browser: Any,
    server: PageServer,
    *,
    width: int = 1400,
    scheme: str = "light",
    signed_in: bool = False,
    expected: tuple[str, ...] = (),
) -> Iterator[Tab]:
    """``expected``: parts of what the console may say."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    try:
        one = Tab(context.new_page(), server, expected)
        one.page.set_default_timeout(20_000)
        if signed_in:
            one.page.goto(server.sign_in_url)
        yield one
        assert not one.wrong, "\n".join(one.wrong)
    finally:
        context.close()
