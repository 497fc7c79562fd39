"""``offsetlog metrics``: topics, groups and lag in Prometheus' text, once or served."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from offsetlog.cli.base import Command
from offsetlog.cli.output import print_json, print_line, print_text
from offsetlog.cli.params import HostPort
from offsetlog.cli.session import CliSession, pass_session

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
    "--listen", type=HostPort(), metavar="HOST:PORT",
    help="Serve them there, at /metrics, until Ctrl-C; a port alone is one of this machine.",
)  # fmt: skip
@pass_session
def command(session: CliSession, listen: tuple[str, int] | None) -> None:
    """Print the metrics of topics and groups, as Prometheus reads them.

    Names and labels are kafka_exporter's: kafka_consumergroup_lag and others, which dashboards
    know. They are computed at one look, whose requests grow with the topics alone. With --listen,
    such as --listen 127.0.0.1:9308, Prometheus or a collector scrapes them at any time; whoever
    reaches that address may read them.
    """
    from offsetlog.metrics.exposition import to_text
    from offsetlog.metrics.metrics import Metrics
    from offsetlog.metrics.server import MetricsServer

    with session.open() as log:
        metrics = Metrics(log)
        if listen is None:
            samples = metrics.samples()
            if session.json:
                print_json(_as_json(samples))
            else:
                print_text(to_text(samples))
            return
        root_id = log.root_id  # A log that is not there is an error before anything is served.
        server = MetricsServer(metrics.text, *listen, log.env)
        if session.json:
            print_json({"url": server.url, "root_id": root_id})
        else:
            print_line(f"The metrics of {log.url}: {server.url}")
            print_line("Ctrl-C ends it.", stderr=True)
        server.serve()


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
