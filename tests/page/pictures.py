"""Take the pictures of docs/page.md anew: ``python -m tests.page.pictures``."""

from __future__ import annotations

import io
import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from PIL import Image

import offsetlog
from offsetlog.page.server import PageServer
from tests.pages import ROOT
from tests.servers import chromium

FOLDER = ROOT / "docs" / "pictures"
PICTURES = {
    "page-topics": ("#/topics", 1100, 420, "light"),
    "page-records": ("#/topics/orders?key=customer-7", 1100, 640, "light"),
    "page-group": ("#/groups/billing", 1100, 700, "light"),
    "page-reset": ("#/groups/billing/reset", 1100, 640, "light"),
    "page-narrow": ("#/groups/billing/reset", 360, 800, "dark"),
}
SECONDS = 25


@contextmanager
def shop() -> Iterator[PageServer]:
    """A log with some days of orders, whose readers have begun to lag."""
    chance = random.Random(3)
    with offsetlog.open("memory://pictures") as log:
        now = log.env.now_ms()
        for name, partitions in (
            ("orders", 4),
            ("invoices", 4),
            ("clicks", 12),
            ("payments.v1", 2),
        ):
            log.create_topic(name, partitions=partitions)
            with log.producer() as producer:
                for n in range(2400 if name == "orders" else chance.randint(200, 3000)):
                    _send(producer, name, n, now - (2400 - min(n, 2400)) * 90_000)
        positions = {("orders", p): 390 + 10 * p for p in range(4)}
        for name, behind in (("billing", 0), ("fraud-check", 60), ("warehouse", -30)):
            with log.consumer(group=name, enable_auto_commit=False) as consumer:
                consumer.assign(list(positions))
                consumer.commit({p: at + behind for p, at in positions.items()})
        with PageServer(log, port=0, allow_changes=True) as server:
            yield server


def _send(producer: offsetlog.Producer, topic: str, n: int, time_ms: int) -> None:
    value = {"order": n, "customer": f"customer-{n % 40}", "items": [{"sku": "A-17", "count": 2}]}
    producer.send(
        topic, json.dumps(value).encode(), key=f"customer-{n % 40}".encode(),
        headers=[("source", b"web")], timestamp=time_ms,
    )  # fmt: skip


def live(server: PageServer, page: Any) -> None:
    """Let orders come and the group read in bursts, so that there is a curve."""
    log = server.page.log
    group = {p: 390 + 10 * p for p in range(4)}
    with (
        log.producer() as producer,
        log.consumer(group="billing", enable_auto_commit=False) as consumer,
    ):
        consumer.assign([("orders", p) for p in group])
        for second in range(SECONDS):
            for n in range(30):
                _send(producer, "orders", n, log.env.now_ms())
            producer.flush()
            if second > 8:
                group = {
                    p: min(at + 28, log.topic("orders").end_offsets()[p]) for p, at in group.items()
                }
                consumer.commit({("orders", p): at for p, at in group.items()})
            page.wait_for_timeout(1000)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with shop() as server, chromium.running() as browser:
        first = browser.new_context(viewport={"width": 1100, "height": 700}).new_page()
        first.goto(f"{server.url}#/groups/billing")
        live(server, first)
        for name, (view, width, height, scheme) in PICTURES.items():
            page = first
            if name != "page-group":
                context = browser.new_context(
                    viewport={"width": width, "height": height}, color_scheme=scheme
                )
                page = context.new_page()
                page.goto(server.sign_in_url)
                page.goto(f"{server.url}{view}")
            page.wait_for_selector("main:not([aria-busy]) h1")
            if name == "page-records":
                page.click(".fold >> nth=0")
            if "reset" in view:
                page.check("input[value=datetime]")
                page.wait_for_selector(".moves li")
            page.wait_for_timeout(1500)
            if name == "page-narrow":
                page.evaluate("document.querySelector('.moves').scrollIntoView()")
            picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            picture.quantize(64, dither=Image.Dither.NONE).save(
                FOLDER / f"{name}.png", optimize=True
            )
            time.sleep(0.1)


if __name__ == "__main__":
    main()
