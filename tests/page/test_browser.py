"""The page in a real browser: each view, what can be done there, and what must not happen."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
import pytest

import offsetlog
from offsetlog.page.server import PageServer
from tests.page.conftest import HOSTILE, fill
from tests.page.server import Client, token_of
from tests.page.tabs import tab

pytestmark = pytest.mark.root_in("memory")

VIEWS = {
    "topics": "#/topics",
    "records": "#/topics/orders?partition=1&from=offset&at=3&key=customer-0",
    "hostile records": "#/topics/hostile",
    "partitions": "#/topics/orders/partitions",
    "groups of a topic": "#/topics/orders/groups",
    "settings": "#/topics/orders/settings",
    "chain": "#/topics/orders/chain",
    "files": "#/topics/orders/files?partition=2",
    "groups": "#/groups",
    "group": "#/groups/billing",
    "group without a commit": "#/groups/new",
    "group of no known lag": "#/groups/tail",
    "members": "#/groups/readers/members",
    "reset": "#/groups/billing/reset",
    "changes": "#/changes",
    "upkeep": "#/upkeep",
    "not there": "#/topics/gone",
}
LOOKS = [(360, "dark"), (1400, "light"), (360, "light"), (1400, "dark")]
GONE = ("404",)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    """A page that only reads, for who only looks; with a group that has a member."""
    with offsetlog.open(f"memory://{tmp_path_factory.mktemp('shown').name}") as log:
        fill(log)
        with (
            log.consumer(group="readers", topics=["orders"], auto_offset_reset="earliest") as one,
            log.consumer(group="new", topics=["orders"], auto_offset_reset="earliest"),
            log.consumer(group="tail", topics=["orders"]),
            PageServer(log, port=0) as server,
        ):
            one.poll()
            one.commit()
            yield server


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_each_view_is_readable_by_everybody(shown, browser, width, scheme) -> None:
    """By axe, dark and light; nothing is wider than the screen, and the console stays empty."""
    wrong: list[str] = []
    # All views in two of the looks; in the others those with colours of their own.
    names = (
        VIEWS if (width, scheme) in LOOKS[:2] else ("topics", "group", "reset", "hostile records")
    )
    with tab(browser, shown, width=width, scheme=scheme, expected=GONE) as one:
        for name in names:
            page = one.open(VIEWS[name])
            if name == "hostile records":
                for button in page.query_selector_all(".fold"):
                    button.click()
            if name == "reset":
                page.wait_for_selector(".moves li")
            if name == "group":
                page.wait_for_selector(".curve")
            wrong += [f"{name}: {text}" for text in one.violations()]
            wrong += [f"{name} is too wide: {text}" for text in one.too_wide()]
    assert not wrong, "\n".join(wrong)


def test_what_each_view_shows(shown, browser) -> None:
    expected = {
        "topics": ["orders", "hostile", "90", "billing 50"],
        "records": ["customer-0", "Offset", '"order": 16'],
        "partitions": ["Records", "90", "First offset"],
        "groups of a topic": ["billing", "Empty", "50", "90 no commit yet", "– no commit yet"],
        "settings": ["retention.ms", "set for this topic", "compression.type", "default"],
        "chain": ["records were appended", "the topic was created", "3 partitions"],
        "files": ["_log/", "(an entry)"],
        "groups": ["billing", "readers", "Stable", "Empty", "50", "90 no commit yet"],
        "group": ["Lag in records", "50", "Positions", "30"],
        "group without a commit": ["90", "no commit yet", "Positions", "30"],
        "group of no known lag": ["–", "no commit yet", "not known before the first commit"],
        "members": ["readers", "sticky", "orders: 0, 1, 2"],
        "reset": [
            "To the beginning",
            "Dry run: nothing is changed yet",
            "40 offsets are read again",
        ],
        "changes": ["What changed"],
        "upkeep": ["Verify", "Maintain"],
        "not there": ["There is no topic 'gone'."],
    }
    with tab(browser, shown, expected=GONE) as one:
        for name, texts in expected.items():
            one.open(VIEWS[name])
            for text in texts:
                one.wait_for_text(text)
        assert one.page.title() == "gone – offsetlog"


def test_stored_text_is_text(shown, browser) -> None:
    """In key, value, header, a position's metadata and a key that is searched: nothing runs."""
    with tab(browser, shown, expected=("400",)) as one:
        page = one.open("#/topics/hostile")
        for button in page.query_selector_all(".fold"):
            button.click()
        page.wait_for_selector(".headers dd")
        text = one.text()
        assert text.count(HOSTILE) >= 5 and '"><img src=x onerror=' in text
        assert "\\u202edrow\\x1b[31m" in text and "\u202e" not in text and "\x1b" not in text
        assert "ff 00 80" in text and "null (a tombstone)" in text
        assert page.query_selector("main script, main img, main iframe") is None
        one.open("#/groups/billing")
        assert HOSTILE in one.text()
        one.open(f"#/topics/hostile?key={HOSTILE}")
        assert one.page.input_value("#key") == HOSTILE and HOSTILE in one.text(".records")
        one.open("#/topics/%3Cimg%20src=x%20onerror=window.hacked=1%3E/settings")
        assert page.evaluate("window.hacked") is None


def test_hostile_settings_and_folders_are_text(tmp_path, browser) -> None:
    """What the offsets table, the settings and file names hold may be anything."""
    with offsetlog.open(f"memory://{tmp_path.name}") as log:
        fill(log)
        with PageServer(log, port=0) as server, tab(browser, server) as one:
            one.page.route(
                "**/api/topics/orders",
                lambda route: route.fulfill(
                    json={
                        "name": HOSTILE, "partitions": [], "config": {HOSTILE: HOSTILE},
                        "settings": {HOSTILE: HOSTILE}, "entries": 1, "records": 0, "bytes": 0,
                        "records_per_second": None, "groups": [], "folder": HOSTILE,
                    }
                ),
            )  # fmt: skip
            one.page.route(
                "**/api/groups",
                lambda route: route.fulfill(
                    json=[{"name": HOSTILE, "state": HOSTILE, "members": 1, "partitions": 1,
                           "topics": [HOSTILE], "records": 1, "bytes": 1, "seconds": 1}]
                ),
            )  # fmt: skip
            one.open("#/topics/orders/settings")
            assert one.text().count(HOSTILE) == 3
            one.open("#/groups")
            assert one.text().count(HOSTILE) == 3
            assert one.page.evaluate("window.hacked") is None


# --- records -----------------------------------------------------------------------------------


def test_a_record_as_text_json_and_hex(shown, browser) -> None:
    with tab(browser, shown) as one:
        page = one.open("#/topics/orders?partition=0&from=before&at=29")
        page.click(".fold")
        page.wait_for_selector(".detail .json")
        # Not rounded: as a number of JavaScript it would end in 7000.
        assert "12345678901234567890" in one.text(".detail .json")
        page.click("summary >> nth=0")
        assert not page.is_visible(".json-digits >> nth=0")
        page.click("button:text-is('Hex')")
        assert "7b 22 6f 72 64 65 72 22" in one.text("pre.hex")
        page.click("button:text-is('Text')")
        assert '{"order": 87,' in one.text("pre.text")
        assert "source" in one.text(".headers") and "web" in one.text(".headers")


def test_the_records_that_are_asked_for(shown, browser) -> None:
    with tab(browser, shown) as one:
        page = one.open("#/topics/orders")

        def rows() -> list[str]:
            return [row.inner_text() for row in page.query_selector_all("tr.record")]

        assert len(rows()) == 50 and '"order": 89,' in rows()[0]
        page.click("button:text-is('Older')")
        page.wait_for_function("() => document.querySelectorAll('tr.record').length === 90")
        page.select_option("#partition", "2")
        page.select_option("#from", "offset")
        page.fill("#at", "28")
        page.click("button:text-is('Show')")
        page.wait_for_function("() => document.querySelectorAll('tr.record').length === 2")
        assert '"order": 86,' in rows()[0] and "at=28" in page.url
        page.fill("#contains", '"order": 89')
        page.keyboard.press("Enter")
        page.wait_for_function("() => document.querySelectorAll('tr.record').length === 1")
        page.go_back()
        page.wait_for_function("() => document.querySelectorAll('tr.record').length === 2")
        page.select_option("#from", "time")
        page.fill("#at", "2001-01-01T00:00")
        page.fill("#key", "customer-1")
        page.click("button:text-is('Show')")
        one.wait_for_text("30 looked through")
        assert all("customer-1" in row for row in rows()) and '"order": 5,' in rows()[0]


def test_records_as_they_come(log, server, browser) -> None:
    with tab(browser, server) as one:
        page = one.open("#/topics/orders")
        page.click("button:text-is('Live')")
        page.wait_for_selector("[aria-pressed=true]")
        for n in range(3):
            with log.producer() as producer:
                producer.send("orders", f"fresh {n}".encode(), partition=n)
            one.wait_for_text(f"fresh {n}")
        first = page.inner_text("tr.record >> nth=0")
        assert "fresh 2" in first
        page.click("button:text-is('Live: on')")
        assert page.query_selector_all("tr.record.new")


# --- resets ------------------------------------------------------------------------------------


def committed(log: offsetlog.Log) -> list[int]:
    return [position.offset for _, position in sorted(log.group("billing").committed().items())]


def test_a_reset_from_dry_run_to_execution(log, changing, browser) -> None:
    with tab(browser, changing, signed_in=True) as one:
        page = one.open("#/groups")
        page.click("main a:text-is('billing')")
        page.click("text=Reset or replay")
        page.wait_for_selector(".moves li")
        moves = one.text(".moves")
        assert "10 → 0" in moves and "30 → 0" in moves and "stays" in moves
        assert "40 offsets are read again" in one.text()
        assert committed(log) == [10, 30, 0]
        page.click("button:text-is('Execute…')")
        assert committed(log) == [10, 30, 0]
        assert page.evaluate("document.activeElement.innerText") == "Yes, move it"
        page.click("text=Yes, move it")
        one.wait_for_text("Done")
        assert committed(log) == [0, 0, 0]
        page.click("nav.tabs >> text=Lag")
        one.wait_for_text("90", "dl.facts")
        page.click("header >> text=Changes")
        one.wait_for_text("reset to-earliest: orders-0: 10 to 0")
        assert "this page" in one.text()


WAYS = [
    ("latest", {}, [30, 30, 30], "skips 30"),
    ("current", {}, [10, 30, 0], "stays"),
    ("offset", {"offset": "7"}, [7, 7, 7], "skips 7"),
    ("shift", {"shift": "-5"}, [5, 25, 0], "before the earliest"),
    ("datetime", {"datetime": "2001-01-01T00:00"}, [0, 0, 0], "10 offsets again"),
    ("duration", {"duration": "PT1S"}, [30, 30, 30], "skips 20"),
    ("file", {"file": "orders,0,4\norders,1,5\norders,2,6"}, [4, 5, 6], "skips 6"),
]


def test_each_way_of_a_reset(log, changing, browser) -> None:
    """The eighth, to the beginning, has a test of its own."""
    with tab(browser, changing, signed_in=True) as one:
        page = one.open("#/groups/billing/reset")
        for way, fields, after, words in WAYS:
            page.check(f"input[name=way][value={way}]")
            for field, value in fields.items():
                page.fill(f"#reset-{field}", value)
            one.wait_for_text(f"→ {after[0]} ", ".moves li:nth-child(1)")
            one.wait_for_text(f"→ {after[2]} ", ".moves li:nth-child(3)")
            assert words in one.text(".moves"), way
        page.click("button:text-is('Execute…')")
        page.click("text=Yes, move it")
        one.wait_for_text("Done")
        assert committed(log) == [4, 5, 6]


def test_the_command_that_does_the_same(log, server, browser, monkeypatch) -> None:
    """A page that only reads says how it is done elsewhere, and the words are right."""
    from tests.cli.shell import offsetlog as run

    with tab(browser, server) as one:
        page = one.open("#/groups/billing/reset")
        page.wait_for_selector(".moves li")
        assert "only reads" in one.text()
        assert page.query_selector("button:text-is('Execute…')") is None
        page.fill("#reset-partitions", "0,1")
        page.check("input[value=duration]")
        page.fill("#reset-duration", "P30D")
        one.wait_for_text("→ 30 ", ".moves li:nth-child(1)")
        page.click("text=The same as a command")
        words = one.text("details pre").split()
    expected = ["groups", "reset", "billing", "--topic", "orders:0,1", "--by-duration", "P30D"]
    assert words[:2] == ["offsetlog", "--root"] and words[3:] == [*expected, "--execute"]
    assert words[2] == log.url
    assert run(*expected, "--help").status == 0


def test_what_is_executed_is_what_was_shown(log, changing, browser) -> None:
    """Who changed an order and executed it at once got the one before, which was still shown."""
    with tab(browser, changing, signed_in=True) as one:
        page = one.open("#/groups/billing/reset")
        page.wait_for_selector("button:text-is('Execute…'):enabled")
        hold = []
        page.route("**/reset", lambda route: hold.append(route))
        page.check("input[value=latest]")
        assert page.is_disabled("button:text-is('Execute…')")
        page.wait_for_timeout(600)  # The dry run is on its way.
        assert len(hold) == 1 and page.is_disabled("button:text-is('Execute…')")
        hold[0].continue_()
        page.unroute("**/reset")
        page.click("button:text-is('Execute…')")
        page.click("text=Yes, move it")
        one.wait_for_text("Done")
        assert committed(log) == [30, 30, 30]


def test_a_mistake_in_a_reset_is_said(log, changing, browser) -> None:
    with tab(browser, changing, signed_in=True, expected=("400", "404")) as one:
        page = one.open("#/groups/billing/reset")
        page.check("input[value=duration]")
        page.fill("#reset-duration", "soon")
        one.wait_for_text("'soon' is not a duration.", ".problem")
        page.fill("#reset-partitions", "7")
        page.fill("#reset-duration", "PT1H")
        one.wait_for_text("has no partition 7", ".problem")
        assert page.query_selector("button:text-is('Execute…')") is None


# --- upkeep ------------------------------------------------------------------------------------


def test_verification_shows_its_progress(log, changing, browser, monkeypatch) -> None:
    go_on, real = threading.Event(), log.verify

    def stepwise(topic=None, *, progress):
        progress("orders", 1, 4)
        go_on.wait(20)
        return real(topic)

    monkeypatch.setattr(log, "verify", stepwise)
    with tab(browser, changing, signed_in=True) as one:
        page = one.open("#/upkeep")
        page.click("button:text-is('Verify')")
        one.wait_for_text("orders: 1 of 4")
        assert page.get_attribute("progress", "value") == "1"
        assert page.is_disabled("button:text-is('Maintain')")
        assert not one.violations()
        go_on.set()
        one.wait_for_text("sound")
        page.fill("input[list]", "orders")
        page.click("button:text-is('Maintain')")
        one.wait_for_text("Upkeep of orders")
        one.wait_for_text("Files merged")


# --- keys, themes, and what is open at once -----------------------------------------------------


def test_keys(shown, browser) -> None:
    with tab(browser, shown) as one:
        page = one.open()
        page.keyboard.press("/")
        page.keyboard.type("host")
        page.wait_for_function("() => document.querySelectorAll('tbody tr').length === 1")
        page.keyboard.press("Escape")
        page.keyboard.press("g")  # In the search it is a letter.
        assert page.url.endswith("#/topics") or "#" not in page.url
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("g")
        one.wait_for_text("Groups", "main h1")
        page.keyboard.press("?")
        assert page.is_visible("dialog") and not one.violations()
        page.click("dialog input")
        page.keyboard.press("Escape")
        assert not page.is_visible("dialog")
        page.keyboard.press("t")  # They are off now.
        page.wait_for_timeout(200)
        assert one.text("main h1") == "Groups"


def test_everything_can_be_reached_by_the_tab_key(shown, browser) -> None:
    with tab(browser, shown) as one:
        page = one.open("#/topics/orders")
        reached = []
        for _ in range(30):
            page.keyboard.press("Tab")
            reached.append(
                page.evaluate(
                    "(document.activeElement.id || document.activeElement.innerText).trim()"
                )
            )
        for name in ("Skip to the content", "Groups", "Chain", "partition", "key", "Show", "Live"):
            assert any(name in one for one in reached), (name, reached)
        page.keyboard.press("Tab")
        focus = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert focus != "none"


def test_the_theme_is_kept(shown, browser) -> None:
    with tab(browser, shown, scheme="light") as one:
        page = one.open()
        back = "getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(back)
        page.click("#theme")
        assert "dark" in one.text("#theme") and page.evaluate(back) != light
        page.reload()
        page.wait_for_selector("main h1")
        assert page.evaluate(back) != light


def test_what_is_being_read_stays_where_it_is(log, server, browser) -> None:
    """A new look changes numbers, and neither the focus, nor what is open or typed."""
    with tab(browser, server) as one:
        page = one.open("#/topics")
        page.fill("[data-search]", "orders")
        page.focus("[data-search]")
        with log.producer() as producer:
            producer.send("orders", b"x")
        one.wait_for_text("91")
        assert page.input_value("[data-search]") == "orders"
        assert page.evaluate("document.activeElement.type") == "search"


def test_two_pages_at_once(log, changing, browser) -> None:
    """One resets, the other one sees it; and two cost no more looks than one."""
    looks = 0
    real = log.overview

    def counted():
        nonlocal looks
        looks += 1
        return real()

    log.overview = counted
    began = time.monotonic()
    with (
        tab(browser, changing, signed_in=True) as one,
        tab(browser, changing, width=360, scheme="dark") as other,
    ):
        other.open("#/groups/billing")
        one.open("#/groups/billing/reset")
        one.page.wait_for_selector(".moves li")
        one.page.click("button:text-is('Execute…')")
        one.page.click("text=Yes, move it")
        one.wait_for_text("Done")
        other.wait_for_text("90", "dl.facts")
        other.page.wait_for_timeout(3000)
        # One a second at most, and one after the reset.
        assert 2 <= looks <= time.monotonic() - began + 3


# --- when something goes away -------------------------------------------------------------------


def test_the_log_goes_away_and_comes_back(tmp_path, browser) -> None:
    root = tmp_path / "log"
    with offsetlog.open(str(root)) as log:
        fill(log)
        failures = ("503", "500", "404", "400")
        with PageServer(log, port=0) as server, tab(browser, server, expected=failures) as one:
            page = one.open("#/groups/billing")
            assert not page.is_visible("#banner")
            root.rename(tmp_path / "elsewhere")
            page.wait_for_selector("#banner:visible")
            assert "What is shown is of" in one.text("#banner")
            assert "Positions" in one.text() and "Traceback" not in one.text("#banner")
            assert not one.violations()
            (tmp_path / "elsewhere").rename(root)
            page.wait_for_selector("#banner", state="hidden", timeout=40_000)
            with log.producer() as producer:
                producer.send("orders", b"x", partition=0)
            one.wait_for_text("51", "dl.facts")


def test_the_server_goes_away_and_comes_back(log, browser) -> None:
    with PageServer(log, port=0) as server:
        port = server.port
        with tab(browser, server, expected=("Failed to load", "ERR_")) as one:
            page = one.open("#/topics")
            server.__exit__(None, None, None)
            page.wait_for_selector("#banner:visible")
            assert "does not answer" in one.text("#banner")
            log.create_topic("meanwhile")
            with PageServer(log, port=port):
                one.wait_for_text("meanwhile", timeout=40_000)
                assert not page.is_visible("#banner")


def test_nobody_at_the_page_costs_one_look_a_minute(shown, browser) -> None:
    with tab(browser, shown) as one:
        page = one.page
        asked: list[str] = []
        page.clock.install()
        one.open("#/topics/orders/partitions")
        page.on("request", lambda request: asked.append(request.url))
        page.clock.fast_forward(11 * 60_000)
        page.wait_for_function("() => document.getElementById('pulse').textContent")
        page.wait_for_timeout(500)
        for _ in range(3):
            asked.clear()
            page.clock.fast_forward(55_000)
            page.wait_for_timeout(300)
            assert asked == []
            page.clock.fast_forward(6_000)
            page.wait_for_timeout(300)
            # Of the groups, for their curves, and of the view.
            assert len(asked) == 2, asked


def test_a_curve_has_bounded_memory(shown, browser) -> None:
    with tab(browser, shown) as one:
        page = one.open()
        sizes = page.evaluate(
            """async () => {
              const { Series } = await import('./charts.js');
              const series = new Series(100);
              const sizes = [];
              for (let at = 1; at <= 5000; at += 1) {
                series.add(at, { records: at });
                sizes.push(series.points.length);
              }
              return [Math.max(...sizes), series.points[0].at, series.points.at(-1).at,
                      series.points.every((p, i) => !i || p.at > series.points[i - 1].at)];
            }"""
        )
        assert sizes[0] <= 101 and sizes[1] <= 2 and sizes[2] == 5000 and sizes[3]


# --- much of it --------------------------------------------------------------------------------


def first_rows_ms(one: Any, view: str, selector: str) -> float:
    """From nothing to the first rows, as the browser measured it."""
    one.page.goto("about:blank")
    began = time.perf_counter()
    one.page.goto(f"{one.server.url}{view}")
    one.page.wait_for_selector(selector)
    return 1000 * (time.perf_counter() - began)


def test_a_thousand_topics_without_a_stall(tmp_path, browser, record_property) -> None:
    with offsetlog.open(f"memory://{tmp_path.name}") as log:
        for number in range(1000):
            log.create_topic(f"topic-{number:04}", partitions=2)
        with PageServer(log, port=0) as server, tab(browser, server) as one:
            one.open("#/topics")  # The first look opens each topic.
            paint = first_rows_ms(one, "#/topics", "tbody tr")
            typed = one.page.evaluate(
                """async () => {
                  const box = document.querySelector('[data-search]');
                  const began = performance.now();
                  box.value = 'topic-09';
                  box.dispatchEvent(new Event('input'));
                  await new Promise(resolve => requestAnimationFrame(() => setTimeout(resolve)));
                  return [performance.now() - began, document.querySelectorAll('tbody tr').length];
                }"""
            )
            record_property("first_rows_ms", round(paint))
            record_property("search_ms", round(typed[0]))
            print(f"1,000 topics: first rows {paint:.0f} ms, search {typed[0]:.0f} ms")
            assert typed[1] == 100 and typed[0] < 1000 and paint < 5000


def test_ten_million_records_without_a_stall(tmp_path, browser, record_property) -> None:
    count, batches = 10_000_000, 5
    with offsetlog.open(str(tmp_path / "log")) as log:
        log.create_topic(
            "big", partitions=2, config={"retention.ms": -1, "compression.type": "lz4"}
        )
        size = count // batches
        keys = pa.array([b"k%d" % n for n in range(1000)] * (size // 1000))
        for batch in range(batches):
            begin = 1_700_000_000_000 + batch * size
            times = pa.array(range(begin, begin + size)).cast(pa.timestamp("ms", "UTC"))
            table = pa.table({"key": keys, "value": keys, "timestamp": times})
            with log.producer() as producer:
                producer.send_arrow("big", table).result()
        with PageServer(log, port=0) as server, tab(browser, server) as one:
            took = {}
            for name, query in {
                "newest": "",
                "offset": "?partition=0&from=offset&at=2345678",
                "time": "?from=time&at=2023-11-14T23:00",
                "key": "?key=k77",
            }.items():
                took[name] = first_rows_ms(one, f"#/topics/big{query}", "tr.record")
                record_property(f"{name}_ms", round(took[name]))
                assert len(one.page.query_selector_all("tr.record")) == 50
            print("10 M records:", json.dumps({name: round(ms) for name, ms in took.items()}))
            assert max(took.values()) < 10_000, took


def test_spark_queries_that_report_here(log, browser) -> None:
    from offsetlog.core.group.lag import Lag
    from offsetlog.metrics import Metrics
    from pyspark_offsetlog.about.lag_report import LagReport

    metrics = Metrics()
    lines = (Lag("orders", 0, 10, 0, 30, 20, 1000, 5.0, 0, False, None, ""),)
    with PageServer(log, port=0, metrics=metrics) as server, tab(browser, server) as one:
        one.open("#/groups")
        assert "Spark queries" not in one.text()
        at = "2026-03-01T12:00:00.000Z"
        metrics.report(LagReport(HOSTILE, "run", 7, at, ("billing",), lines))
        one.wait_for_text("Spark queries")
        assert HOSTILE in one.text() and "5 s" in one.text()
        assert not one.violations()


# --- as a new user would -----------------------------------------------------------------------


def test_who_knows_akhq_finds_the_lag_and_replays_yesterday(tmp_path, browser) -> None:
    """By what is written on the page, from its first view; in the user's own time zone."""
    with offsetlog.open(f"memory://{tmp_path.name}") as log:
        log.create_topic("orders", partitions=2, config={"retention.ms": -1})
        hour, now = 3_600_000, log.env.now_ms()
        times = [now - n * hour for n in range(96)][::-1]
        with log.producer() as producer:
            for n, time_ms in enumerate(times):
                producer.send("orders", b"%d" % n, partition=n % 2, timestamp=time_ms)
        with log.consumer(group="billing", enable_auto_commit=False) as consumer:
            consumer.assign([("orders", 0), ("orders", 1)])
            consumer.commit({("orders", 0): 45, ("orders", 1): 48})
        with PageServer(log, port=0, allow_changes=True) as server:
            context = browser.new_context(timezone_id="Asia/Tokyo", locale="ja-JP")
            page = context.new_page()
            page.goto(server.sign_in_url)
            page.wait_for_selector("text=billing")
            # How far it is behind is there at once, and by partition one click further.
            assert page.inner_text("li:has(a:text-is('billing'))").split() == ["billing", "3"]
            page.click("a:text-is('billing')")
            page.wait_for_selector("text=Lag in records")
            assert page.inner_text("dl.facts >> div >> nth=0").split()[-1] == "3"
            page.click("text=Reset or replay")
            page.click("text=To a date and time")
            page.wait_for_function(
                "() => document.querySelector('.moves')?.innerText.includes('again')"
            )
            page.click("button:text-is('Execute…')")
            page.click("text=Yes, move it")
            page.wait_for_selector("text=Done")
            context.close()
        tokyo = 9 * hour
        midnight = (now + tokyo) // (24 * hour) * 24 * hour - tokyo - 24 * hour
        first = [t for t in times if t >= midnight][0]
        positions = [p.offset for _, p in sorted(log.group("billing").committed().items())]
        expected = [next(i for i, t in enumerate(times[p::2]) if t >= first) for p in (0, 1)]
        assert positions == expected


def test_the_token_stays_in_the_tab_that_was_given_it(log, changing, browser) -> None:
    """The cookie goes to every port of the host: what a program there gets changes nothing."""
    got: list[str] = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            got.append(self.headers.get("Cookie", ""))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    token, asked = token_of(changing), list[tuple[str, str | None]]()
    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as other, browser.new_context() as context:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        page = context.new_page()
        page.on("request", lambda one: asked.append((one.url, one.headers.get("authorization"))))
        page.goto(changing.sign_in_url)
        page.wait_for_selector("main a:text-is('orders')")
        assert page.url == changing.url and token not in page.evaluate(
            "JSON.stringify(history.state)"
        )
        own = [bearer for url, bearer in asked if "/api/" in url]
        assert own and set(own) == {f"Bearer {token}"}
        page.reload()
        page.wait_for_selector("main a:text-is('orders')")
        page.goto(f"{changing.url}#/upkeep")
        assert page.is_enabled("button:text-is('Maintain')")
        # Another tab of the same browser has the cookie alone.
        second = context.new_page()
        second.goto(f"{changing.url}#/upkeep")
        second.wait_for_selector("text=open the address with the token in this tab")
        for button in ("Verify", "Maintain"):
            assert second.is_disabled(f"button:text-is('{button}')")
        second.goto(f"{changing.url}#/groups/billing/reset")
        second.wait_for_selector("text=To execute this, open the address with the token")
        second.goto(f"http://127.0.0.1:{other.server_address[1]}/")
        other.shutdown()
    [held] = [cookie for cookie in got if "offsetlog_page_" in cookie][:1]
    assert token not in held
    for value in (held, held.partition("=")[2]):
        thief = Client(changing, cookie=held, authorization=f"Bearer {value}")
        assert thief.post("/api/jobs", {"kind": "maintain"}).status == 401
    assert committed(log) == [10, 30, 0]


def test_a_file_of_positions_that_is_too_long_is_not_cut(log, changing, browser) -> None:
    """Eight million characters of it were taken, and its last line might have lost digits."""
    with tab(browser, changing, signed_in=True) as one:
        page = one.open("#/groups/billing/reset")
        page.check("input[value=file]")
        text = b"orders,0,123\n" * 300_000
        chosen = {"name": "p.csv", "mimeType": "text/csv", "buffer": text}
        page.set_input_files("input[type=file]", chosen)
        one.wait_for_text("too much for the page")


def test_below_a_base_path_and_with_a_token_for_everything(log, browser) -> None:
    with (
        PageServer(log, host="0.0.0.0", port=0, base_path="/data/logs") as server,
        browser.new_context() as context,
    ):
        page, wrong = context.new_page(), []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("requestfailed", lambda request: wrong.append(request.url))
        here = f"http://127.0.0.1:{server.port}/data/logs/"
        page.goto(here)
        assert "needs the token" in page.inner_text("body")
        page.goto(f"{here}?{server.sign_in_url.partition('?')[2]}")
        page.wait_for_selector("main a:text-is('orders')")
        assert page.url == here
        page.click("main a:text-is('orders')")
        page.wait_for_selector("tr.record")
        assert wrong == []
