"""``offsetlog doctor``: is this machine, and this filesystem, fit for a log.

Invariants:

1. The filesystem is judged by racing real processes on it, not by its name.
2. All of it happens in a scratch folder of its own under the root, which is removed; no topic
   is needed, and none is touched.
3. Java and Spark are for information: a log needs neither (see ``offsetlog.environment``).
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import click

from offsetlog.cli.base import Command
from offsetlog.cli.failures import FAILED, say
from offsetlog.cli.output import print_json, print_table, progress
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
    "deltalake": "reading Delta tables",
    "pyspark": "Spark",
}


class DoctorFact(NamedTuple):
    """One line about this machine."""

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
@click.option("--processes", type=Whole(2, 64), default=8, show_default=True, help="How many race.")
@click.option(
    "--rounds", type=Whole(2, 10_000), default=50, show_default=True,
    help="How many names they race for.",
)  # fmt: skip
@click.option(
    "--seconds", type=click.FloatRange(5, 3600), default=60, show_default=True,
    help="The longest that it may take, about.",
)  # fmt: skip
@pass_session
@click.pass_context
def command(
    ctx: click.Context, session: CliSession, processes: int, rounds: int, seconds: float
) -> None:
    """Find out whether the root's filesystem is fit for a log, and how fast it is.

    Processes race for names while others read, in a scratch folder under the root that is
    removed again. The root need not hold a log yet. The exit status is 1 if it is not fit for
    writing. Where Spark is installed it is looked at too, without starting it: Java, versions,
    the Python of its workers, and whether they find the plugin; only Spark's users need that.
    """
    place = session.place()
    facts = machine()
    spark = spark_checks(java())
    with progress("Checking") as show:
        from offsetlog.testing import check_store

        report = _in_scratch(
            place,
            lambda url: check_store(
                url,
                place.storage,
                processes=processes,
                rounds=rounds,
                seconds_max=seconds,
                progress=show,
            ),
        )
    fit = report.passed and report.rounds > 0
    if session.json:
        told = {"fit": fit, "machine": [fact._asdict() for fact in facts]}
        told["spark"] = [check._asdict() for check in spark]
        print_json({**told, "filesystem": report.to_dict()})
    else:
        _show_machine(facts, spark)
        _show(report, fit, rounds)
    if report.passed and not fit:
        say("nothing was raced for in the time, so nothing is known. Give it more with --seconds.")
        ctx.exit(FAILED)
    if not fit:
        say(
            "this filesystem is not fit for writing a log. Use a local disk, S3, GCS, Azure, sftp "
            "or smb; what can be read here stays readable."
        )
        ctx.exit(FAILED)


def _in_scratch(place: RootAddress, check: Callable[[str], Report]) -> Report:
    """Run a check on a new folder under the root, and leave nothing of it."""
    from offsetlog.errors import OffsetLogError
    from offsetlog.storage.open import open_store

    name = f"_doctor-{os.urandom(6).hex()}"
    try:
        return check(f"{place.url.rstrip('/')}/{name}")
    finally:
        store = open_store(place.url, **place.storage)
        try:
            store.delete_tree(name)
        except OffsetLogError:
            pass  # Where nothing can be written there is nothing to remove.
        finally:
            store.close()


def _show_machine(facts: list[DoctorFact], spark: list[SparkCheck]) -> None:
    print_table(("MACHINE", "FOUND", "NEEDED FOR"), facts)
    click.echo()
    if spark:
        rows = [(check.name, "ok" if check.passed else "WRONG", check.detail) for check in spark]
        print_table(("SPARK", "RESULT", "WHAT WAS SEEN"), rows)
        click.echo()


def _show(report: Report, fit: bool, rounds: int) -> None:
    rows = [
        (check.name, "ok" if check.passed else "FAILED", check.detail) for check in report.checks
    ]
    print_table(("CHECK", "RESULT", "WHAT WAS SEEN"), rows)
    if report.latencies:
        click.echo()
        print_table(
            ("CALL", "P50 MS", "P99 MS"),
            [(one.call, round(one.p50_ms, 2), round(one.p99_ms, 2)) for one in report.latencies],
        )
    click.echo()
    if report.puts_per_second_alone:
        click.echo(
            f"Appends a second: {report.puts_per_second_alone:.0f} of one process, "
            f"{report.puts_per_second_contended:.0f} of {report.processes} on one topic."
        )
    if report.passed and report.rounds < rounds:
        click.echo(
            f"There was time to race for {report.rounds} of {rounds} names: "
            "--seconds gives it more."
        )
    verdict = "Fit for writing" if fit else "NOT fit for writing"
    click.echo(f"{verdict}: {report.url.rpartition('/')[0]} ({report.seconds:.1f} s).")


# --- this machine ------------------------------------------------------------------------------


def machine() -> list[DoctorFact]:
    facts = [DoctorFact("python", platform.python_version(), "everything")]
    facts += [DoctorFact(name, version_of(name) or MISSING, "everything") for name in NEEDED]
    facts += [DoctorFact(name, version_of(name) or MISSING, use) for name, use in USED_FOR.items()]
    return [*facts, DoctorFact("java", java(), "Spark (17 or newer)")]
