"""The Python that plans a stream, as Spark's JVM starts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import offsetlog
from offsetlog.environment import spark_jar
from tests.waiting import until


def planners() -> dict[int, list[int]]:
    """The planner servers that run on this machine, and the planners that each of them forked."""
    parents, servers = {}, []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            command = (place / "cmdline").read_bytes().split(b"\0")
            status = (place / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(place.name)] = int(status[1])
        if b"--serve" in command:
            servers.append(int(place.name))
    return {
        server: [process for process, parent in parents.items() if parent == server]
        for server in servers
        if parents[server] not in servers
    }


def test_each_query_gets_a_fork_of_one_server(spark: Any, tmp_path: Path) -> None:
    """It ends with its query; the server stays for the next one."""
    jar = spark_jar(spark.version)
    if jar.path is None:
        pytest.skip(f"no jar for the JVM: {jar.reason}")
    root = tmp_path / "log"
    with offsetlog.open(str(root)) as log, log.producer() as producer:
        log.create_topic("t")
        producer.send("t", b"x")
    frame = spark.readStream.format("offsetlog").option("subscribe", "t").load(str(root))
    java = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    seen = []
    for number in range(2):
        writer = frame.writeStream.format("noop")
        query = writer.option("checkpointLocation", str(tmp_path / f"c{number}")).start()
        until(lambda: query.lastProgress is not None)  # noqa: B023 - it is called at once
        mine = {
            server: forked
            for server, forked in planners().items()
            if Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[1] == str(java)
        }
        [(server, [planner])] = mine.items()
        seen.append((server, planner))
        query.stop()
        until(lambda: not planners()[server])  # noqa: B023
    assert seen[0][0] == seen[1][0] and seen[0][1] != seen[1][1]
