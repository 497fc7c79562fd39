"""``offsetlog metrics``: topics, groups and lag in Prometheus' text, or to OpenTelemetry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from offsetlog.cli.base import Command
from offsetlog.cli.output import print_json, print_text
from offsetlog.cli.rounds import every_option, repeat
from offsetlog.cli.session import CliSession, pass_session
from offsetlog.errors import InvalidRequestError

if TYPE_CHECKING:
    from offsetlog.metrics.families import Samples


@click.command(
    "metrics",
    cls=Command,
    examples="""
    $ offsetlog metrics
    $ offsetlog metrics --json
    """,
)
@click.option(
    "--otlp", metavar="URL",
    help="Send them to this collector of OpenTelemetry, such as http://localhost:4318.",
)  # fmt: skip
@every_option("With --otlp: send them so often, until Ctrl-C.")
@pass_session
def command(session: CliSession, otlp: str | None, every: int | None) -> None:
    """Print the metrics of topics and groups, as Prometheus reads them.

    Names and labels are kafka_exporter's: kafka_consumergroup_lag and others, which dashboards
    know. They are computed at one look, whose requests grow with the topics alone. With --otlp
    they are sent, once or --every DURATION, such as 30s; that needs OpenTelemetry's packages.
    """
    from offsetlog.metrics.exposition import to_text
    from offsetlog.metrics.metrics import Metrics
    from offsetlog.metrics.otlp import Collector

    if otlp is None:
        if every is not None:
            raise InvalidRequestError(
                "--every needs --otlp.", "Prometheus asks by itself: 'offsetlog metrics' is once."
            )
        with session.open() as log:
            samples = Metrics(log).samples()
        if session.json:
            print_json(_as_json(samples))
        else:
            print_text(to_text(samples))
        return
    with Collector(otlp) as collector, session.open() as log:
        metrics = Metrics(log)
        repeat(lambda: metrics.send(collector), every)


def _as_json(samples: Samples) -> list[dict[str, object]]:
    return [
        {
            "name": family.name,
            "labels": dict(zip(family.labels, sample.labels, strict=True)),
            "value": sample.value,
        }
        for family, its_samples in samples.items()
        for sample in its_samples
    ]
