"""The senders of orders: shops, each a process in plain Python, and a folder with JSON files.

Invariants:

1. An order of a shop counts as sent when its record was acknowledged; a file, when it is complete
   under its name.
2. They send until they are ended, and finish what they have begun. They pause while too many
   orders wait to be read, so that the story takes no longer on a slow machine.
3. A shop that was killed sends the batch that was not acknowledged again, under its number.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

from offsetlog.demo.orders import BATCH, FILES, order
from offsetlog.demo.program import Program

FILE_ORDERS = 500


class Sender(threading.Thread):
    """Sends a batch, then pauses."""

    pause: float
    program: Program | None = None
    pid = 0
    state = "running"
    """In the words of a program's state, if there is no program."""

    def __init__(self, name: str, busy: Callable[[], bool]) -> None:
        super().__init__(name=name, daemon=True)
        self.sent = 0
        self.failure: Exception | None = None
        self._busy = busy
        self._ending = threading.Event()

    @property
    def unfinished(self) -> bool:
        """Whether a batch was begun and must be sent again."""
        return False

    def run(self) -> None:
        try:
            while not self._ending.is_set() or self.unfinished:
                if self.unfinished or not self._busy():
                    self.send()
                self._ending.wait(self.pause)
        except Exception as error:  # noqa: BLE001 - the story raises it again, and ends with it
            self.failure = error

    def send(self) -> None:
        """Send the next batch, and count it."""
        raise NotImplementedError

    def end(self, at_once: bool = False) -> None:
        """Finish what was begun; or, ``at_once``, kill the program first."""
        self._ending.set()
        if at_once and self.program is not None:
            self.program.kill()
        if self.is_alive():
            self.join(60)
        self.state = "ended"
        if self.program is not None:
            self.program.end()


class Files(Sender):
    pause = 1.5

    def __init__(self, folder: Path, busy: Callable[[], bool]) -> None:
        super().__init__(FILES, busy)
        self._folder = folder / "incoming"
        self._folder.mkdir()

    def send(self) -> None:
        numbers = range(self.sent, self.sent + FILE_ORDERS)
        hidden = self._folder / f".orders-{self.sent:08d}"
        hidden.write_text("".join(f"{json.dumps(order(FILES, number))}\n" for number in numbers))
        hidden.rename(self._folder / f"orders-{self.sent:08d}.json")
        self.sent += FILE_ORDERS


class Shop(Sender):
    pause = 0.25
    program: Program

    def __init__(self, folder: Path, name: str, busy: Callable[[], bool]) -> None:
        super().__init__(name, busy)
        self.program = Program("shop", name, folder)
        self.places: dict[tuple[int, int], int] = {}
        """(partition, offset) -> number, of the orders that were acknowledged."""
        self.killed_after = 0
        self._pending = ""
        self._lock = threading.Lock()

    @property
    def unfinished(self) -> bool:
        return bool(self._pending) and self.program.state == "running"

    def start(self) -> None:
        self.restart()
        super().start()

    def restart(self) -> None:
        with self._lock:
            self.program.start(answers=True)

    def kill(self) -> None:
        """SIGKILL, a moment after it was asked for a batch: did that land? Nobody knows."""
        with self._lock:
            self._request()
            time.sleep(0.01)
            self.program.kill()
            self.killed_after = self.sent

    def send(self) -> None:
        with self._lock:
            if self.program.state != "running":
                return
            self._request()
            places = self.program.answer().split()
            if not places:
                self.program.check()
                return
            self._pending = ""
            for number, place in enumerate(places, self.sent):
                partition, offset = place.split(":")
                self.places[int(partition), int(offset)] = number
            self.sent += BATCH

    def _request(self) -> None:
        """Ask for the next batch: its number, and its timestamp, the same until it is answered."""
        self._pending = self._pending or f"{self.sent // BATCH} {time.time_ns() // 1_000_000}"
        self.program.request(self._pending)
