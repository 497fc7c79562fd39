"""Who sends orders in the demo: a folder that gets JSON files, and a shop in plain Python.

Invariants:

1. A file appears whole, by renaming it.
2. An order of the shop counts as sent when its record was acknowledged.
3. Both send until they are told to stop, and what they have begun they finish. While too much
   waits to be read they make a pause, so that the story is as long on a slow machine.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import offsetlog

from .orders import FILES, SHOP, TOPIC, order

FILE = 500
BATCH = 100


class Sender(threading.Thread):
    """Sends a batch now and then."""

    source: str
    batch: int

    def __init__(self, pause: float, busy: Callable[[], bool]) -> None:
        super().__init__(name=f"demo-{self.source}", daemon=True)
        self._busy = busy
        self.sent = 0
        self.failed: Exception | None = None
        self._pause = pause
        self._end = threading.Event()

    def run(self) -> None:
        try:
            while not self._end.is_set():
                if not self._busy():
                    self.send(range(self.sent, self.sent + self.batch))
                    self.sent += self.batch
                self._end.wait(self._pause)
        except Exception as error:  # noqa: BLE001 - told by the story, which ends with it
            self.failed = error

    def send(self, numbers: range) -> None:
        raise NotImplementedError

    def end(self) -> None:
        self._end.set()
        if self.is_alive():
            self.join(60)


class Files(Sender):
    source, batch = FILES, FILE

    def __init__(self, folder: Path, pause: float, busy: Callable[[], bool]) -> None:
        super().__init__(pause, busy)
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def send(self, numbers: range) -> None:
        text = "".join(f"{json.dumps(order(FILES, n))}\n" for n in numbers)
        hidden = self._folder / f".orders-{numbers[0]:08d}"
        hidden.write_text(text)
        hidden.rename(self._folder / f"orders-{numbers[0]:08d}.json")


class Shop(Sender):
    source, batch = SHOP, BATCH

    def __init__(self, root: str, pause: float, busy: Callable[[], bool]) -> None:
        super().__init__(pause, busy)
        self._log = offsetlog.open(root)
        self._producer = self._log.producer()

    def send(self, numbers: range) -> None:
        futures = []
        for number in numbers:
            said = order(SHOP, number)
            value = json.dumps(said).encode()
            futures.append(self._producer.send(TOPIC, value, said["customer"].encode()))
        self._producer.flush()
        for future in futures:
            future.result()

    def end(self) -> None:
        super().end()
        self._producer.close()
        self._log.close()
