"""What the suite found out about a filesystem.

1. Plain frozen values, so that a report can be kept, compared and sent.
2. A check that failed says what was seen and where, so that it can be looked up.
3. Figures are of this run on this machine; they are for comparing, not for promising.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Check:
    """One promise of the port, and whether it was kept."""

    name: str
    passed: bool
    detail: str
    """What was done; of a failed check what was seen."""
    measured: bool = True
    """False: there was no time for it, so nothing is known."""

    @property
    def result(self) -> str:
        if not self.measured:
            return "not measured"
        return "ok" if self.passed else "FAILED"


@dataclass(frozen=True)
class Latency:
    """How long one kind of call took by itself, in milliseconds."""

    call: str
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Report:
    """The result of a run: its checks and latencies."""

    url: str
    checks: tuple[Check, ...]
    latencies: tuple[Latency, ...]
    puts_per_second_alone: float
    puts_per_second_contended: float
    processes: int
    rounds: int
    """Names that were raced for."""
    rounds_with_one_winner: int
    seconds: float

    @property
    def passed(self) -> bool:
        """Every check was made, and none failed."""
        return bool(self.checks) and all(check.passed and check.measured for check in self.checks)

    @property
    def faults(self) -> tuple[str, ...]:
        return tuple(f"{check.name}: {check.detail}" for check in self.checks if not check.passed)

    def to_dict(self) -> dict[str, Any]:
        """For machine-readable output."""
        return {**asdict(self), "passed": self.passed, "faults": list(self.faults)}

    def __str__(self) -> str:
        verdict = "fit for a log" if self.passed else "NOT fit for a log"
        if not self.passed and self.checks and not self.faults:
            verdict = "not known to be fit for a log"
        lines = [f"{self.url} is {verdict} ({self.seconds:.1f} s)"]
        for check in self.checks:
            lines.append(f"  {check.result:<6} {check.name}: {check.detail}")
        for latency in self.latencies:
            lines.append(
                f"  {latency.call}: p50 {latency.p50_ms:.2f} ms, p99 {latency.p99_ms:.2f} ms"
            )
        lines.append(
            f"  puts a second: {self.puts_per_second_alone:.0f} alone, "
            f"{self.puts_per_second_contended:.0f} by {self.processes} processes on one name "
            "after another"
        )
        return "\n".join(lines)
