"""``offsetlog doctor``: whether this filesystem and this machine are fit for a log.

Invariants:

1. The filesystem is tested by racing real processes on it, not by its name.
2. Everything happens in a scratch folder under the root, which is removed; no topic is needed,
   and none is touched.
3. Java and Spark are for information: a log needs neither (see ``offsetlog.environment``).
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import click

from offsetlog.cli.base import Command
from offsetlog.cli.failures import FAILED
from offsetlog.cli.output import print_json, print_line, print_message, print_table, progress
from offsetlog.cli.params import Whole
from offsetlog.cli.session import CliSession, RootAddress, pass_session
from offsetlog.environment import MISSING, SparkCheck, java, spark_checks, version_of

if TYPE_CHECKING:
    from offsetlog.testing.report import Report

NEEDED = ("pyarrow", "fsspec", "numpy", "xxhash")
USED_FOR = {
    "s3fs": "s3://",
    "gcsfs": "gs://",
    "adlfs": "abfs://",
    "paramiko": "sftp://",
    "smbprotocol": "smb://",
    "pyspark": "Spark",
}


class DoctorFact(NamedTuple):
    """One fact about this machine."""

    what: str
    found: str
    needed_for: str


@click.command(
    "doctor",
    cls=Command,
    examples="""
    $ offsetlog doctor
    $ offsetlog --root /data/log doctor --processes 4 --rounds 20 --seconds 20
    """,
)
@click.option(
    "--processes", type=Whole(2, 64), default=8, show_default=True, help="Processes that race."
)
@click.option(
    "--rounds", type=Whole(2, 10_000), default=50, show_default=True,
    help="Names they race for.",
)  # fmt: skip
@click.option(
    "--seconds", type=click.FloatRange(5, 3600), default=60, show_default=True,
    help="The approximate time limit.",
)  # fmt: skip
@pass_session
@click.pass_context
def command(
    ctx: click.Context, session: CliSession, processes: int, rounds: int, seconds: float
) -> None:
    """Test whether the root's filesystem is fit for a log, and how fast it is.

    Processes race for names while others read, in a scratch folder under the root that is
    removed afterwards. The root need not hold a log yet. The exit status is 1 if the filesystem is
    not fit for writing. Where Spark is installed, Java, versions, the workers' Python and the
    plugin are checked too, without starting Spark.
    """
    address = session.address()
    facts = machine()
    spark = spark_checks(java())
    with progress("Checking") as show:
        from offsetlog.testing import check_store

        report = _in_scratch(
            address,
            lambda url: check_store(
                url,
                address.storage,
                processes=processes,
                rounds=rounds,
                seconds_max=seconds,
                progress=show,
            ),
        )
    fit = report.passed and report.rounds > 0
    if session.json:
        print_json(
            {
                "fit": fit,
                "machine": [fact._asdict() for fact in facts],
                "spark": [check._asdict() for check in spark],
                "filesystem": report.to_dict(),
            }
        )
    else:
        _print_machine(facts, spark)
        _print_report(report, fit, rounds)
    if report.passed and not fit:
        print_message(
            "the time was too short for a single race, so nothing is known. Raise --seconds."
        )
        ctx.exit(FAILED)
    if not fit:
        print_message(
            "this filesystem is not fit for writing a log. Use a local disk, S3, GCS, Azure, sftp "
            "or smb; a log here can still be read."
        )
        ctx.exit(FAILED)


def _in_scratch(address: RootAddress, check: Callable[[str], Report]) -> Report:
    """Run a check in a new folder under the root, and remove it."""
    from offsetlog.errors import OffsetLogError
    from offsetlog.storage.open import open_store

    name = f"_doctor-{os.urandom(6).hex()}"
    try:
        return check(f"{address.url.rstrip('/')}/{name}")
    finally:
        store = open_store(address.url, **address.storage)
        try:
            store.delete_tree(name)
        except OffsetLogError:
            pass  # Where nothing can be written there is nothing to remove.
        finally:
            store.close()


def _print_machine(facts: list[DoctorFact], spark: list[SparkCheck]) -> None:
    print_table(("MACHINE", "FOUND", "NEEDED FOR"), facts)
    print_line()
    if spark:
        rows = [(check.name, "ok" if check.passed else "WRONG", check.detail) for check in spark]
        print_table(("SPARK", "RESULT", "DETAIL"), rows)
        print_line()


def _print_report(report: Report, fit: bool, rounds: int) -> None:
    rows = [
        (check.name, "ok" if check.passed else "FAILED", check.detail) for check in report.checks
    ]
    print_table(("CHECK", "RESULT", "DETAIL"), rows)
    if report.latencies:
        print_line()
        print_table(
            ("CALL", "P50 MS", "P99 MS"),
            [(one.call, round(one.p50_ms, 2), round(one.p99_ms, 2)) for one in report.latencies],
        )
    print_line()
    if report.puts_per_second_alone:
        print_line(
            f"Appends a second: {report.puts_per_second_alone:.0f} by one process, "
            f"{report.puts_per_second_contended:.0f} by {report.processes} on one topic."
        )
    if report.passed and report.rounds < rounds:
        print_line(
            f"There was time to race for {report.rounds} of {rounds} names; "
            "raise --seconds for more."
        )
    verdict = "Fit for writing" if fit else "NOT fit for writing"
    print_line(f"{verdict}: {report.url.rpartition('/')[0]} ({report.seconds:.1f} s).")


# --- this machine ------------------------------------------------------------------------------


def machine() -> list[DoctorFact]:
    facts = [DoctorFact("python", platform.python_version(), "everything")]
    facts += [DoctorFact(name, version_of(name) or MISSING, "everything") for name in NEEDED]
    facts += [DoctorFact(name, version_of(name) or MISSING, use) for name, use in USED_FOR.items()]
    return [*facts, DoctorFact("java", java(), "Spark (17 or newer)")]
