"""The story of the demo, chapter by chapter; the same with Spark and without."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable
from pathlib import Path

from offsetlog.demo import table
from offsetlog.demo.billing import RIGHT, WRONG
from offsetlog.demo.orders import GROUP, PARTITIONS, TOPIC
from offsetlog.demo.reckoning import Finding, Reading, findings, money, take_reading
from offsetlog.demo.screen import Lines, screen_for
from offsetlog.demo.stage import Stage, Status

TABLE = "table.format=delta"
LIMIT = 420.0
"""Seconds that one step may take on a busy machine."""
FILES = (
    (f"{TOPIC}/_log/*/*.parquet", "the chain: {} entries"),
    (f"{TOPIC}/_snapshot/*.parquet", "snapshots, so that opening is fast: {}"),
    (f"{TOPIC}/partition=*/*.parquet", "segments of larger batches: {}"),
    (f"{TOPIC}/_delta_log/*.json", "versions of the topic's Delta table: {}"),
    ("__consumer_offsets/_delta_log/*.json", "versions of the groups' Delta table: {}"),
)


def play(
    folder: Path, *, shops: int, with_spark: bool, seconds: float, as_json: bool
) -> list[Finding]:
    """Play the story; no process is left behind, whatever happens."""
    stage = Stage(folder, shops, with_spark)
    try:
        return Story(stage, screen_for(as_json), seconds).tell()
    finally:
        stage.stop()


class Story:
    def __init__(self, stage: Stage, screen: Lines, seconds: float) -> None:
        self._stage = stage
        self._screen = screen
        self._seconds = seconds

    def tell(self) -> list[Finding]:
        """Play all chapters; the findings."""
        self._stream()
        self._crash()
        first = self._count()
        replay = self._replay()
        self._screen.chapter("6. The same count, of both readings")
        self._show(first, replay)
        self._stage.end()
        self._table()
        self._where()
        return findings(self._stage, first, replay)

    def _watch(self, event: str, reached: Callable[[Status], bool], share: float = 0.0) -> None:
        """Until a condition is reached, and this share of the time for sending has passed since."""
        seconds, since = share * self._seconds, float("inf")

        def ended(status: Status) -> bool:
            nonlocal since
            if reached(status):
                since = min(since, status.elapsed)
            return status.elapsed >= since + seconds

        self._screen.watch(self._stage, event, ended, LIMIT + 3 * self._seconds)

    def _stream(self) -> None:
        stage, screen = self._stage, self._screen
        screen.chapter("1. A topic, and orders that stream into it")
        screen.say(f"Topic {TOPIC!r} with {PARTITIONS} partitions: a folder. No broker runs.")
        stage.start()
        screen.say(
            f"{len(stage.shops)} producer processes in plain Python, the shops, send orders. "
            "Nobody reads yet, and the lag grows."
        )
        self._watch("an order of each shop", lambda status: all(s.sent for s in stage.shops), 0.15)
        screen.chapter("2. A group reads, and its lag goes down")
        screen.say(stage.readers.start())
        self._watch(
            "the first invoice", lambda status: status.billed > 0 and stage.readers.at_work, 0.4
        )

    def _crash(self) -> None:
        stage, screen = self._stage, self._screen
        shop, readers = stage.shops[-1], stage.readers
        screen.chapter(f"3. SIGKILL for a shop and for {readers.victim}")
        shop.kill()
        readers.kill()
        screen.say(
            f"{shop.name} had {shop.killed_after:,} orders acknowledged, and had begun another "
            f"batch. {readers.outage}"
        )
        self._watch("the outage", lambda status: True, 0.2)
        shop.restart()
        screen.say(
            f"{shop.name} is restarted (process {shop.program.pid}). It sends that batch under "
            f"the same number again: if it had landed, it counts once. {readers.restart()}"
        )
        self._watch(
            "the recovery", lambda status: readers.at_work and shop.sent > shop.killed_after, 0.2
        )
        for sender in stage.senders:
            sender.end()
        screen.say(f"{readers.recovery()[1]}. The senders stop, and the rest is read.")
        self._watch("a lag of 0", lambda status: status.all_read)

    def _count(self) -> Reading:
        self._screen.chapter("4. Was anything lost or duplicated? The count")
        reading = take_reading(self._stage, "first reading", 1)
        self._show(reading)
        if reading.missing == reading.twice == 0 and reading.cents != reading.worth:
            self._screen.say("Nothing is lost or duplicated. But the sum is wrong: a bug.")
        return reading

    def _replay(self) -> Reading:
        stage, screen = self._stage, self._screen
        screen.chapter("5. The bug, and a replay while the group reads")
        changes = difflib.unified_diff(WRONG.splitlines(), RIGHT.splitlines(), lineterm="")
        for line in list(changes)[3:]:
            screen.echo(f"{line[0]} {line[1:]}".rstrip())
        stage.billing.rule.write_text(RIGHT)
        screen.say("It is fixed. All orders must be billed again, so the group is reset:")
        screen.echo(
            f"  offsetlog --root {shlex.quote(stage.root)} \\\n"
            f"    groups reset {GROUP} --topic {TOPIC} --to-earliest --execute"
        )
        for move in stage.log.group(GROUP).reset(TOPIC, to="earliest", dry_run=False).moves:
            screen.echo(f"  {move.topic}-{move.partition}: {move.before} -> {move.after}")
        screen.say("Nothing is stopped: the readers go back to the beginning by themselves.")
        self._watch(
            "the end of the replay",
            lambda status: status.invoices.get(2, 0) >= status.stored and status.all_read,
        )
        return take_reading(stage, "replay", 2)

    def _show(self, *readings: Reading) -> None:
        """Show a count."""
        names = (
            "", "orders sent", "invoices", "distinct (partition, offset)", "orders missing",
            "orders twice", "the orders are worth", "the invoices say",
        )  # fmt: skip
        columns = [
            (
                one.name, f"{one.sent:,}", f"{one.invoices:,}", f"{one.places:,}",
                f"{one.missing:,}", f"{one.twice:,}", money(one.worth), money(one.cents),
            )
            for one in readings
        ]  # fmt: skip
        for name, *values in zip(names, *columns, strict=True):
            self._screen.echo(f"  {name:30}" + "".join(f"{value:>18}" for value in values))

    def _table(self) -> None:
        stage, screen = self._stage, self._screen
        screen.chapter("7. The topic as a table")
        root = shlex.quote(stage.root)
        screen.echo(f"  offsetlog --root {root} \\\n    topics alter {TOPIC} --config {TABLE}")
        screen.echo(f"  offsetlog --root {root} maintain")
        topic = stage.log.topic(TOPIC)
        topic.alter(config=dict([TABLE.split("=")]))
        stage.log.maintain(TOPIC)
        info = topic.table()
        assert info is not None
        records = sum(info.end_offsets.values())
        screen.say(
            f"Now the topic's folder is a Delta table with its {records:,} orders. Its files are "
            "the topic's own: nothing is stored twice."
        )
        if not table.has_reader():
            screen.say(
                f"Anything that reads Delta reads it: pip install {table.READER}, or DuckDB."
            )
            return
        screen.say(
            f"Anything that reads Delta reads it. {table.READER}, which knows nothing of us:"
        )
        screen.echo("\n".join(f"  {line}" for line in table.QUERY.splitlines()))
        names = ("partition", "orders", "first", "last")
        for row in [names, *table.answer(info.path)]:
            screen.echo("  " + "".join(f"{value:>12}" for value in row))

    def _where(self) -> None:
        self._screen.chapter("8. What is stored: only files")
        root = Path(self._stage.root)
        for pattern, meaning in FILES:
            paths = sorted(root.glob(pattern))
            if paths:
                path = re.sub(r"(-[0-9a-f]{4})[0-9a-f]{28}", r"\1...", str(paths[-1]))
                path = path.removeprefix(f"{root}/")
                self._screen.echo(f"{meaning.format(len(paths))}, such as\n  {path}")
        self._screen.say("'offsetlog demo --keep' keeps them; 'offsetlog verify' checks them.")
