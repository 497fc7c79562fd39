"""``offsetlog doctor``: whether this filesystem and this machine are fit for a log.

Invariants:

1. The filesystem is tested by racing real processes on it, not by its name.
2. Everything happens in a scratch folder under the root, which is removed, and so is a root that
   was not there before; no topic is needed, and none is touched.
3. ``--repair-caches`` deletes what ``verify`` names as a broken cache, and nothing else.
4. ``--spark-jar`` prints a path and nothing else, so that a shell can pass it on.
5. Java and Spark are for information: a log needs neither (see ``offsetlog.environment``).
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import click

from offsetlog.cli.base import Command
from offsetlog.cli.failures import FAILED
from offsetlog.cli.jar import print_jar
from offsetlog.cli.output import print_json, print_line, print_message, print_table, progress
from offsetlog.cli.params import Whole
from offsetlog.cli.session import CliSession, RootAddress, pass_session
from offsetlog.environment import MISSING, SparkCheck, java, spark_checks, version_of
from offsetlog.filesystems import FILESYSTEMS, what_works
from offsetlog.spark_jar import SparkJar
from offsetlog.spark_jar import spark_jar as find_jar

if TYPE_CHECKING:
    from offsetlog.storage.store import Store
    from offsetlog.testing.report import Report

NEEDED = ("pyarrow", "fsspec", "numpy", "xxhash")
USED_FOR = {
    **{fs.package: f"{fs.protocols[0]}://" for fs in FILESYSTEMS if fs.package},
    "pyspark": "Spark",
}


class DoctorFact(NamedTuple):
    """One fact about this machine."""

    what: str
    found: str
    needed_for: str


class SettingsFact(NamedTuple):
    """A settings file that is there."""

    path: str
    result: str


@click.command(
    "doctor",
    cls=Command,
    examples="""
    $ offsetlog doctor
    $ offsetlog --root /data/log doctor --processes 4 --rounds 20 --seconds 20
    $ offsetlog doctor --repair-caches
    $ spark-submit --jars "$(offsetlog doctor --spark-jar)" job.py
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
@click.option(
    "--repair-caches", is_flag=True,
    help="Only verify the log, and delete the caches that are broken.",
)  # fmt: skip
@click.option(
    "--spark-jar", is_flag=True,
    help="Only print the path of the jar for the Spark that is installed.",
)  # fmt: skip
@pass_session
@click.pass_context
def command(
    ctx: click.Context,
    session: CliSession,
    processes: int,
    rounds: int,
    seconds: float,
    repair_caches: bool,
    spark_jar: bool,
) -> None:
    """Test whether the root's filesystem is fit for a log, and how fast it is.

    Processes race for names while others read, in a scratch folder under the root that is
    removed afterwards. The root need not hold a log yet. The exit status is 1 if the filesystem is
    not fit for writing. Where Spark is installed, Java, versions, the workers' Python and the
    plugin are checked too, without starting Spark.

    With --repair-caches nothing is raced: the whole log is verified, and the caches that 'offsetlog
    verify' names are deleted. They cost time only, and whoever writes next stores new ones. The
    exit status is then 1 if a promise is broken; nothing is done about that.

    With --spark-jar nothing is tested either. The jar lets Spark's JVM read segments by itself, and
    is given to a cluster with --jars; a session of offsetlog.spark.session() has it. The exit
    status is 1 if there is none for this Spark, where Python reads.
    """
    if spark_jar:
        ctx.exit(_print_spark_jar(session))
    if repair_caches:
        ctx.exit(_repair_caches(session))
    address = session.address()
    facts = machine()
    spark = spark_checks(java())
    settings = settings_facts(session)
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
                "settings": [fact._asdict() for fact in settings],
                "machine": [fact._asdict() for fact in facts],
                "spark": [
                    {"name": c.name, "passed": c.passed, "result": c.result, "detail": c.detail}
                    for c in spark
                ],
                "filesystem": report.to_dict(),
            }
        )
    else:
        print_table(("SETTINGS FILE", "RESULT"), settings)
        print_line()
        _print_machine(facts, spark)
        _print_report(report, fit, rounds)
    if not fit and not report.faults:
        late = [check.name for check in report.checks if not check.measured] or ["race"]
        print_message(
            f"there was no time to measure: {', '.join(late)}. Whether this filesystem is fit "
            "is not known. Raise --seconds."
        )
        ctx.exit(FAILED)
    if not fit:
        print_message(f"{_why_not(report)} {_can_be_read(address)}")
        ctx.exit(FAILED)


def _print_spark_jar(session: CliSession) -> int:
    version = version_of("pyspark")
    jar = SparkJar(None, "PySpark is not installed") if version is None else find_jar(version)
    return print_jar(session, jar, jar._asdict(), "; 'offsetlog jar' builds one")


def _why_not(report: Report) -> str:
    why = f"this filesystem is not fit for writing a log: {report.faults[0].rstrip('.')}."
    if report.url.startswith("file:"):
        return why  # A local disk is fit, but not a full one, or one that is read only.
    return why if what_works() in why else f"{why} Fit for writing: {what_works()}."


def _can_be_read(address: RootAddress) -> str:
    """Whether a log could be read there at least: looked up, since the server may be gone."""
    from offsetlog.errors import OffsetLogError
    from offsetlog.format.names import ROOT_FILE
    from offsetlog.storage.open import open_store

    store = open_store(address.url, **address.storage)
    try:
        store.get(ROOT_FILE, 0, 1)
    except OffsetLogError as error:
        return f"Nothing can be read there either: {error.message}"
    finally:
        store.close()
    return "A log here can still be read."


def _in_scratch(address: RootAddress, check: Callable[[str], Report]) -> Report:
    """Run a check in a new folder under the root, and remove it; the root too, if it is new."""
    from offsetlog.errors import OffsetLogError
    from offsetlog.storage.open import open_store

    name = f"_doctor-{os.urandom(6).hex()}"
    store = open_store(address.url, **address.storage)
    new: list[tuple[Store, str]] = []
    try:
        with suppress(OffsetLogError):
            new = list(_missing_folders(store))
        return check(f"{address.url.rstrip('/')}/{name}")
    finally:
        try:
            store.delete_tree(name)
            for above, folder in new:
                if not above.remove_folder(folder):
                    break  # Somebody uses it meanwhile.
        except OffsetLogError:
            pass  # Where nothing can be written there is nothing to remove.
        finally:
            store.close()


def _missing_folders(store: Store) -> Iterator[tuple[Store, str]]:
    """The folders on the way to a root that are not there yet, the root first."""
    from offsetlog.storage.store import Store

    if type(store).remove_folder is Store.remove_folder:
        return  # Folders are parts of names there.
    for above, folder in store.above():
        if folder in set(above.folders("")):
            return
        yield above, folder


def _print_machine(facts: list[DoctorFact], spark: list[SparkCheck]) -> None:
    print_table(("MACHINE", "FOUND", "NEEDED FOR"), facts)
    print_line()
    if spark:
        rows = [(check.name, check.result, check.detail) for check in spark]
        print_table(("SPARK", "RESULT", "DETAIL"), rows)
        print_line()


def _print_report(report: Report, fit: bool, rounds: int) -> None:
    rows = [(check.name, check.result, check.detail) for check in report.checks]
    print_table(("CHECK", "RESULT", "DETAIL"), rows)
    if report.latencies:
        print_line()
        print_table(
            ("CALL", "P50 MS", "P99 MS"),
            [(one.call, round(one.p50_ms, 2), round(one.p99_ms, 2)) for one in report.latencies],
        )
    print_line()
    if report.puts_per_second_alone:
        contended = report.puts_per_second_contended
        print_line(
            f"Appends a second: {report.puts_per_second_alone:.0f} by one process, "
            f"{f'{contended:.0f}' if contended else 'not measured'} by {report.processes} on one "
            "topic."
        )
    if not report.faults and report.rounds < rounds:
        print_line(
            f"There was time to race for {report.rounds} of {rounds} names; "
            "raise --seconds for more."
        )
    verdict = "Fit for writing" if fit else "NOT fit for writing"
    if not fit and not report.faults:
        verdict = "Not known to be fit for writing"
    print_line(f"{verdict}: {report.url.rpartition('/')[0]} ({report.seconds:.1f} s).")


def settings_facts(session: CliSession) -> list[SettingsFact]:
    """Which settings file is used, and which were passed over and why."""
    settings, passed_over = session.settings()
    facts = [SettingsFact(path, f"passed over: {why}") for path, why in passed_over]
    return [*facts, SettingsFact(settings.path or "none", "used" if settings.path else "")]


def _repair_caches(session: CliSession) -> int:
    from offsetlog.engine.upkeep.findings import delete_caches

    with session.open() as log:
        with progress("Verifying") as show:
            reports = log.verify(progress=show)
        deleted = [name for report in reports for name in delete_caches(log.store, report)]
    faults = [f"{report.topic}: {fault}" for report in reports for fault in report.faults]
    if session.json:
        print_json({"deleted": deleted, "faults": faults})
    else:
        for name in deleted:
            print_line(f"deleted {name}")
        print_line(f"{len(deleted)} broken caches were deleted.")
    if faults:
        print_message(
            f"{len(faults)} faults break a promise, and nothing was done about them: 'offsetlog "
            "verify' names them."
        )
    return FAILED if faults else 0


# --- this machine ------------------------------------------------------------------------------


def machine() -> list[DoctorFact]:
    facts = [DoctorFact("python", platform.python_version(), "everything")]
    facts += [DoctorFact(name, version_of(name) or MISSING, "everything") for name in NEEDED]
    facts += [DoctorFact(name, version_of(name) or MISSING, use) for name, use in USED_FOR.items()]
    return [*facts, DoctorFact("java", java(), "Spark (17 or newer)")]
