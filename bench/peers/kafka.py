"""A real Kafka broker on loopback: KRaft, one node, and the confluent client's side of a figure.

1. The broker's data lies in the work folder, on the same disk as ours.
2. It ends by its process id, and with the process that started it.
3. ``acks=all`` on one node means: in the page cache of that node. Kafka does not fsync here.
"""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from bench.peers.jars import Package, fetch
from bench.peers.process import PeerUnavailableError, await_ready, end, free_ports

VERSION = "4.1.1"
PACKAGES = (
    Package("org.apache.kafka", "kafka_2.13", VERSION),
    Package("org.apache.kafka", "kafka-tools", VERSION),
    Package("org.slf4j", "slf4j-simple", "1.7.36"),
)
READY_SECONDS = 60.0


def _properties(folder: Path, broker: int, controller: int) -> Path:
    path = folder / "server.properties"
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{broker}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(folder / "data"),
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


class Broker:
    """One running broker."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, data: Path) -> None:
        self.pid = process.pid
        self.address = f"127.0.0.1:{port}"
        self.data = data
        self._process = process

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic and wait until it is there."""
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        for future in self._admin.create_topics([NewTopic(name, partitions, 1)]).values():
            future.result(30)

    def delete_topic(self, name: str) -> None:
        """Delete a topic; the broker takes its files away later."""
        for future in self._admin.delete_topics([name]).values():
            future.result(30)

    @cached_property
    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    def stored(self, topic: str) -> int:
        """Bytes of a topic's records on the broker's disk, without its indexes."""
        found = self.data.glob(f"{topic}-*/*.log")
        return sum(file.stat().st_size for file in found)

    def stop(self) -> None:
        """End the broker."""
        end(self._process)


def start(work: Path, cache: Path) -> Broker:
    """Start a broker with an empty folder and wait until it answers."""
    jars = fetch(f"kafka-{VERSION}", PACKAGES, cache.resolve())
    folder = work.resolve() / "kafka"
    folder.mkdir()
    port, controller = free_ports(2)
    properties = str(_properties(folder, port, controller))
    java = ["java", "-Xms1g", "-Xmx1g", "-cp", f"{jars}/*"]
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    formatted = subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", properties],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if formatted.returncode:
        raise PeerUnavailableError(f"Kafka could not format its folder: {formatted.stderr[-500:]}")
    log = folder / "broker.log"
    with log.open("wb") as out:
        process = subprocess.Popen([*java, "kafka.Kafka", properties], stdout=out, stderr=out)
    broker = Broker(process, port, folder / "data")
    await_ready(process, log, lambda: b"Kafka Server started" in log.read_bytes(), READY_SECONDS)
    return broker


@contextmanager
def running(work: Path, cache: Path) -> Iterator[Broker]:
    """A broker for the length of a block."""
    broker = start(work, cache)
    try:
        yield broker
    finally:
        broker.stop()
