"""The simulated world: files, a clock, processes that die and freeze, and who runs next.

Invariants:

1. Everything that happens follows from the plan and its seed.
2. Actors change places at every storage call, before it takes effect and after.
3. Each landing, overwrite and deletion is shown to the oracle at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from offsetlog.engine.env import Env
from tests.simulation.fibers import Fiber, fiber
from tests.simulation.limits import TINY
from tests.storage.faults import NO_FAULTS, Faults

START_MS = 1_700_000_000_000
PATIENCE = 60_000
"""Steps in which everything must end once the faults have stopped."""


class Crashed(BaseException):
    """The process is gone. Not an ``Exception``: no handler of the code under test sees it."""


class Violation(BaseException):
    """A promise was broken. Not an ``Exception``, so that no code under test handles it."""


class File(NamedTuple):
    data: bytes
    modified_ms: int


class Late(NamedTuple):
    """Something that takes effect some time later, whatever became of its sender."""

    due_step: int
    effect: Callable[[], object]
    text: str


class Line(NamedTuple):
    step: int
    kind: str
    """``op``, ``land``, ``fault`` or ``call``."""
    who: str
    text: str


class Lock:
    """A reentrant lock between the fibers of one process, for code that expects threads."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._owner: Running | None = None
        self._depth = 0

    @property
    def free(self) -> bool:
        return self._owner is None

    def __enter__(self) -> None:
        me = self._world.current
        while self._owner is not None and self._owner is not me:
            if me is None:
                raise Violation("a lock is held by a fiber that is gone")
            me.blocked_on = self
            self._world.pause(me.process)
            me.blocked_on = None
        self._owner = me
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None


class Process:
    """One life of a program. ``memory`` dies with it, ``world.disk`` does not."""

    def __init__(self, world: World, role: str, life: int) -> None:
        self.world = world
        self.role = role
        self.name = f"{role}.{life}" if life else role
        self.rng = random.Random(f"{world.seed}/{self.name}")
        self.skew_ms = self.rng.choice((0, 0, 0, -90_000, 90_000, -7_200_000, 86_400_000))
        self.dead = False
        self.frozen_until = 0
        self.suspended_at: int | None = None
        self.slept_ms = 0
        """Of this its monotonic clock knows nothing."""
        self.faults_seen = 0
        self.running: list[Running] = []

    def env(self) -> Env:
        world, rng = self.world, self.rng
        return Env(
            lambda: world.now_ms + self.skew_ms,
            lambda: (world.now_ms - self.slept_ms) / 1000,
            lambda: f"{rng.getrandbits(128):032x}",
            rng.random,
            lambda seconds: world.sleep(self, seconds),
            # Work beside a program runs where it is handed over, so that the seed decides when.
            spawn=lambda work, name: work(),
            new_lock=lambda: Lock(world),
            limits=TINY,
            boottime=lambda: world.now_ms / 1000,
        )

    @property
    def faults(self) -> Faults:
        return NO_FAULTS if self.world.calm else self.world.faults

    def chance(self, rate: float) -> bool:
        return rate > 0 and self.rng.random() < rate

    def wakes(self) -> None:
        """After a suspend: no time has passed for its monotonic clock and for its waits."""
        if self.suspended_at is None:
            return
        slept = self.world.now_ms - self.suspended_at
        self.suspended_at = None
        self.slept_ms += slept
        for running in self.running:
            running.wake_ms += slept


class Running:
    """A fiber of a process."""

    def __init__(self, process: Process, body: Callable[[], None]) -> None:
        self.process = process
        self.wake_ms = 0
        self.blocked_on: Lock | None = None
        self.fiber: Fiber = fiber(body)


class World:
    def __init__(self, seed: int, faults: Faults, steps: int) -> None:
        self.seed = seed
        self.faults = faults
        self.most_steps = steps
        self.rng = random.Random(f"{seed}/world")
        self.now_ms = START_MS
        self.step = 0
        self.calm = False
        self.files: dict[str, File] = {}
        self.former: dict[str, list[bytes]] = {}
        """What caches held before: they may come back stale."""
        self.disk: dict[str, dict[str, Any]] = {}
        self.trace: list[Line] = []
        self.broke_caches = False
        self.full_until = 0
        self.counts: dict[str, int] = {}
        self.current: Running | None = None
        self._running: list[Running] = []
        self._late: list[Late] = []
        self._lives: dict[str, int] = {}
        self._restarts: list[tuple[int, str]] = []
        self.spawn: Callable[[str, Process], list[Callable[[], None]]] = lambda role, process: []
        self.watch: Callable[[str, str, bytes | None], None] = lambda what, name, data: None
        self.failure: BaseException | None = None

    # --- telling ---------------------------------------------------------------------------

    def tell(self, kind: str, who: str, text: str) -> None:
        self.trace.append(Line(self.step, kind, who, text))

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def fault(self, process: Process | None, what: str, text: str) -> None:
        if process is not None:
            process.faults_seen += 1
        self.count(what)
        self.tell("fault", process.name if process else "world", f"{what}: {text}")

    # --- processes -------------------------------------------------------------------------

    def start(self, role: str) -> None:
        life = self._lives.get(role, 0)
        self._lives[role] = life + 1
        process = Process(self, role, life)
        if life:
            self.tell("op", process.name, "starts again, with an empty memory")
        for body in self.spawn(role, process):
            running = Running(process, self._guarded(process, body))
            process.running.append(running)
            self._running.append(running)

    def _guarded(self, process: Process, body: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                if not process.dead:
                    body()
            except Crashed:
                pass
            except BaseException as error:  # noqa: BLE001 - it is the history's finding
                if self.failure is None and not process.dead:
                    self.failure = error

        return run

    def pause(self, process: Process) -> None:
        """Let others run. Raises ``Crashed`` when the process died meanwhile."""
        if self.current is None:
            return
        if process.dead:
            raise Crashed
        me = self.current
        me.fiber.pause()
        self.current = me
        if process.dead:
            raise Crashed

    def sleep(self, process: Process, seconds: float) -> None:
        if self.current is not None and not process.dead:
            self.current.wake_ms = self.now_ms + int(seconds * 1000)
        self.pause(process)

    def kill(self, process: Process, why: str) -> None:
        self.fault(process, "crash", why)
        process.dead = True
        for running in process.running:
            while not running.fiber.done:
                self._resume(running)
        self._running = [r for r in self._running if r.process is not process]
        self._restarts.append((self.step + self.rng.randrange(1, 60), process.role))

    def _resume(self, running: Running) -> None:
        before, self.current = self.current, running
        running.fiber.resume()
        self.current = before

    # --- the course of things --------------------------------------------------------------

    def run(self) -> None:
        """Until every actor has ended. Raises what went wrong."""
        while self._running or self._restarts:
            self.step += 1
            if self.step == self.most_steps:
                self.calm = True
                self.tell("op", "world", "the faults stop")
            if self.step > self.most_steps + PATIENCE:
                raise Violation("the faults have stopped, and not everything ends")
            self._happen()
            if self._running:
                self._one_step()
            if self.failure is not None:
                raise self.failure
        while self._late:
            self._apply(self._late.pop(0))

    def close(self) -> None:
        """End all fibers, also after a failure."""
        for running in self._running:
            running.process.dead = True
            while not running.fiber.done:
                self._resume(running)

    def _happen(self) -> None:
        """What befalls the world between two steps."""
        for late in [late for late in self._late if late.due_step <= self.step]:
            self._late.remove(late)
            self._apply(late)
        for due, role in list(self._restarts):
            if due <= self.step or self.calm or not self._running:
                self._restarts.remove((due, role))
                self.start(role)
        if self.calm:
            return
        if self._roll(self.faults.crash) and self._running:
            self.kill(self.rng.choice(self._running).process, "the process is killed")
        if self._roll(self.faults.freeze) and self._running:
            process = self.rng.choice(self._running).process
            steps = self.rng.choice((5, 30, 150, 500))
            process.frozen_until = self.step + steps
            self.fault(process, "freeze", f"stands still for {steps} steps")
        if self._roll(self.faults.jump):
            hours = self.rng.choice((0.01, 0.5, 30.0))
            self.now_ms += int(hours * 3_600_000)
            self.fault(None, "jump", f"nothing happens for {hours} hours")
        if self._roll(self.faults.caches):
            self._break_a_cache()
        if self._roll(self.faults.suspend) and self._running:
            self._suspend(self.rng.choice(self._running).process)
        if self._roll(self.faults.clock) and self._running:
            process = self.rng.choice(self._running).process
            by = self.rng.choice((-86_400_000, -5_000, -200, 200, 5_000, 86_400_000))
            process.skew_ms += by
            self.fault(process, "clock", f"its clock is put {by} ms further")
        if self._roll(self.faults.full):
            steps = self.rng.choice((5, 40, 200))
            self.full_until = self.step + steps
            for running in self._running:
                running.process.faults_seen += 1
            self.fault(None, "full", f"the disk is full for {steps} steps")

    def _suspend(self, process: Process) -> None:
        """The others go on, and then hours pass for everybody."""
        if process.suspended_at is not None:
            return
        process.suspended_at = self.now_ms
        process.frozen_until = self.step + self.rng.choice((20, 100, 400))
        hours = self.rng.choice((0.02, 1.0, 30.0))
        self.fault(process, "suspend", f"sleeps for {hours} hours, and its clock with it")
        self.now_ms += int(hours * 3_600_000)

    @property
    def is_full(self) -> bool:
        return self.step < self.full_until and not self.calm

    def _roll(self, rate: float) -> bool:
        return rate > 0 and self.rng.random() < rate

    def _one_step(self) -> None:
        ready = [r for r in self._running if self._ready(r)]
        if not ready:
            self._wait()
            return
        running = ready[self.rng.randrange(len(ready))] if len(ready) > 1 else ready[0]
        self.now_ms += self.rng.randrange(1, 25)
        self._resume(running)
        if running.fiber.done:
            self._running = [r for r in self._running if not r.fiber.done]

    def _ready(self, running: Running) -> bool:
        lock = running.blocked_on
        if running.process.frozen_until > self.step and not self.calm:
            return False
        running.process.wakes()
        return running.wake_ms <= self.now_ms and (lock is None or lock.free)

    def _wait(self) -> None:
        """Nobody can run: time passes until somebody can."""
        sleepers = [r.wake_ms for r in self._running if r.wake_ms > self.now_ms]
        if sleepers:
            self.now_ms = min(sleepers)
        elif self.calm and not self._restarts:
            raise Violation("everybody waits for somebody")

    # --- late effects, broken caches -------------------------------------------------------

    def later(self, text: str, effect: Callable[[], object]) -> None:
        steps = self.rng.choice((3, 20, 100, 400))
        self._late.append(Late(self.step + steps, effect, text))

    def _apply(self, late: Late) -> None:
        self.tell("fault", "world", f"takes effect late: {late.text}")
        late.effect()

    def _break_a_cache(self) -> None:
        names = sorted(n for n in self.files if "/_snapshot/" in n or "/_index/" in n)
        if not names:
            return
        name = self.rng.choice(names)
        file = self.files[name]
        how = self.rng.choice(("gone", "cut", "flipped", "stale"))
        if how == "gone":
            del self.files[name]
        elif how == "stale" and self.former.get(name):
            self.files[name] = file._replace(data=self.rng.choice(self.former[name]))
        elif how == "cut":
            cut = file.data[: self.rng.randrange(len(file.data) or 1)]
            self.files[name] = file._replace(data=cut)
        else:
            data = bytearray(file.data)
            if data:
                data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
            self.files[name] = file._replace(data=bytes(data))
        self.broke_caches = True
        self.fault(None, "caches", f"{name} is {how}")

    # --- files -----------------------------------------------------------------------------

    def create(self, name: str, data: bytes) -> bool:
        """Put-if-absent takes effect, or meets a file."""
        if name in self.files:
            return False
        self.files[name] = File(data, self.now_ms)
        self.watch("create", name, data)
        return True

    def write(self, name: str, data: bytes) -> None:
        before = self.files.get(name)
        if before is not None and ("/_snapshot/" in name or "/_index/" in name):
            self.former.setdefault(name, []).append(before.data)
        self.files[name] = File(data, self.now_ms)
        self.watch("write", name, data)

    def tear(self, name: str, part: bytes) -> None:
        """A write that failed left a part of the file, over what was there."""
        self.broke_caches |= "/_snapshot/" in name or "/_index/" in name
        self.files[name] = File(part, self.now_ms)

    def remove(self, name: str) -> None:
        if self.files.pop(name, None) is not None:
            self.watch("delete", name, None)
