"""A ``Store`` of the simulated world: each call lets others run, and may go wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from offsetlog.errors import StorageError
from offsetlog.format.names import parse_entry
from offsetlog.storage.faults import NoSpaceError, SilenceError
from offsetlog.storage.fsspec import CALL_SECONDS
from offsetlog.storage.store import Committed, Conflict, FileInfo, Offer, PutResult, Store, Unknown
from tests.simulation.world import Process, World


class SimOffer(Offer):
    def __init__(self, store: SimStore, data: bytes) -> None:
        self._store = store
        self._data = data

    def put(self, name: str) -> PutResult:
        return self._store._create(name, self._data)

    def close(self) -> None:
        pass


class SimStore(Store):
    """The world's files as one process sees them."""

    def __init__(self, world: World, process: Process, is_local: bool) -> None:
        self.url = "sim://"
        self.is_local = is_local
        self._world = world
        self._process = process

    def _call(self, what: str, name: str) -> None:
        self._world.tell("call", self._process.name, f"{what} {name}")
        self._wait()

    def _answered(self) -> None:
        """The call took effect; its answer is on its way."""
        self._wait()

    def _wait(self) -> None:
        process = self._process
        if process.chance(process.faults.slow):
            self._world.count("slow")
            self._world.sleep(process, process.rng.choice((0.1, 1.0, 8.0)))
        else:
            self._world.pause(process)

    def _is_silent(self, doing: str, name: str) -> bool:
        """Whether the server says nothing for as long as a call has; the call has waited then."""
        process = self._process
        if self.is_local or not process.chance(process.faults.silent):
            return False
        self._world.fault(process, "silent", f"{doing} {name} is not answered")
        self._world.sleep(process, CALL_SECONDS)
        return True

    def _silence(self, doing: str, name: str, wrote: bool = False) -> SilenceError:
        text = f"Could not {doing} {name}: nothing came for {CALL_SECONDS:.0f} seconds."
        return SilenceError(text, may_have_landed=wrote)

    def _befalls(self, text: str, effect: Callable[[], object]) -> None:
        """What becomes of a write whose answer never came."""
        fate = self._process.rng.choice(("landed", "late", "never"))
        if fate == "landed":
            effect()
        elif fate == "late":
            self._world.later(text, effect)

    def _may_fail(self, doing: str, name: str) -> None:
        if self._is_silent(doing, name):
            raise self._silence(doing, name)
        if self._process.chance(self._process.faults.reads):
            self._world.fault(self._process, "reads", f"{doing} {name} fails")
            raise StorageError(f"Could not {doing} {name}: no answer.")

    def offer(self, data: bytes, beside: str) -> SimOffer:
        return SimOffer(self, data)

    def _create(self, name: str, data: bytes) -> PutResult:
        world, process = self._world, self._process
        self._call("create", name)
        faults = process.faults
        self._may_be_refused("create", name, data)
        if self._is_silent("create", name):
            text = f"create {name} of {process.name}"
            self._befalls(text, partial(world.create, name, data))
            return Unknown("nothing came", waited=True)
        if process.chance(faults.never):
            world.fault(process, "never", f"create {name} never arrives")
            return Unknown("no answer")
        if process.chance(faults.late):
            world.fault(process, "late", f"create {name} is on its way for long")
            world.later(f"create {name} of {process.name}", partial(world.create, name, data))
            return Unknown("no answer")
        landed = world.create(name, data)
        self._answered()
        if process.chance(faults.lost):
            world.fault(process, "lost", f"the answer to create {name}")
            return Unknown("no answer")
        if landed and process.chance(faults.hidden):
            world.fault(process, "hidden", f"own file at {name} is met as a conflict")
            return Conflict()
        return Committed() if landed else Conflict()

    def _may_be_refused(self, doing: str, name: str, data: bytes | None) -> None:
        """As by a full disk. A delete needs no room, but may not be allowed just now."""
        world, process = self._world, self._process
        if (world.is_full and data is not None) or process.chance(process.faults.refused):
            world.fault(process, "refused", f"{doing} {name}")
            raise NoSpaceError(f"Could not {doing} {name}: the disk is full.")

    def put(self, name: str, data: bytes, durable: bool = True) -> None:
        self._write("write", name, partial(self._world.write, name, data), data)

    def _tear(self, name: str, data: bytes) -> None:
        """Entries and stubs are atomic by contract; what else is written may stay in part."""
        world, process = self._world, self._process
        if parse_entry(name) is None and process.chance(process.faults.torn):
            world.fault(process, "torn", f"a part of {name} is written")
            world.tear(name, data[: process.rng.randrange(len(data) or 1)])
            raise StorageError(f"Could not write {name}: no room.", may_have_landed=True)

    def _write(
        self, doing: str, name: str, effect: Callable[[], Any], data: bytes | None = None
    ) -> None:
        world, process = self._world, self._process
        self._call(doing, name)
        faults = process.faults
        self._may_be_refused(doing, name, data)
        if data is not None:
            self._tear(name, data)
        if self._is_silent(doing, name):
            self._befalls(f"{doing} {name} of {process.name}", effect)
            raise self._silence(doing, name, wrote=True)
        if process.chance(faults.late):
            world.fault(process, "late", f"{doing} {name} is on its way for long")
            world.later(f"{doing} {name} of {process.name}", effect)
            raise StorageError(f"Could not {doing} {name}: no answer.", may_have_landed=True)
        effect()
        self._answered()
        if process.chance(faults.lost):
            world.fault(process, "lost", f"the answer to {doing} {name}")
            raise StorageError(f"Could not {doing} {name}: no answer.", may_have_landed=True)

    def delta_address(self, folder: str) -> str:
        return f"{self.url}{folder}"

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes | None:
        self._call("get", name)
        self._may_fail("read", name)
        file = self._world.files.get(name)
        self._answered()
        return None if file is None else file.data[start:end]

    def info(self, name: str) -> FileInfo | None:
        self._call("info", name)
        self._may_fail("look at", name)
        file = self._world.files.get(name)
        return None if file is None else FileInfo(name, len(file.data), file.modified_ms)

    def list(self, folder: str) -> Iterator[FileInfo]:
        self._call("list", folder)
        self._may_fail("list", folder)
        prefix = f"{folder}/"
        found = [
            FileInfo(name, len(file.data), file.modified_ms)
            for name, file in self._world.files.items()
            if name.startswith(prefix) and "/" not in name[len(prefix) :]
        ]
        self._answered()
        return iter(found)

    def folders(self, folder: str) -> Iterator[str]:
        self._call("folders", folder)
        self._may_fail("list", folder)
        prefix = f"{folder}/" if folder else ""
        below = {n[len(prefix) :] for n in self._world.files if n.startswith(prefix)}
        return iter(sorted({n.split("/", 1)[0] for n in below if "/" in n}))

    def delete(self, names: Iterable[str]) -> None:
        todo = list(names)
        is_bulk = self._process.chance(self._process.faults.unordered)
        if is_bulk and len(todo) > 1:
            self._world.count("unordered")
            self._process.rng.shuffle(todo)
        failed: StorageError | None = None
        for name in todo:
            try:
                self._write("delete", name, partial(self._world.remove, name))
            except StorageError as error:
                failed = error
                if not is_bulk:
                    break
        if failed is not None:
            raise failed

    def delete_tree(self, folder: str) -> None:
        self.delete([name for name in self._world.files if name.startswith(f"{folder}/")])

    def settle(self, folder: str) -> None:
        self._call("settle", folder)

    def close(self) -> None:
        pass


class SerialPool:
    """A pool that runs its calls one after another, in an order that the seed decides."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def map(self, call: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        todo = list(items)
        order = list(range(len(todo)))
        self._process.rng.shuffle(order)
        done = {i: call(todo[i]) for i in order}
        return iter([done[i] for i in range(len(todo))])

    def submit(self, call: Callable[..., Any], *arguments: Any) -> _Done:
        try:
            return _Done(call(*arguments), None)
        except Exception as error:  # noqa: BLE001 - given to whoever asks for the result
            return _Done(None, error)


class _Done:
    def __init__(self, value: Any, error: Exception | None) -> None:
        self._value, self._error = value, error

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value
