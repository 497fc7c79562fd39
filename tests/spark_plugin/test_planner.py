"""The Python that plans a stream, as Spark's JVM starts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offsetlog.spark_jar import spark_jar
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


@pytest.fixture
def frame(spark: Any, log: Any, orders: Any) -> Any:
    jar = spark_jar(spark.version)
    if jar.path is None:
        pytest.skip(f"no jar for the JVM: {jar.reason}")
    with log.producer() as producer:
        producer.send("orders", b"x")
    return spark.readStream.format("offsetlog").option("subscribe", "orders").load(log.url)


def started(frame: Any, checkpoint: Path) -> Any:
    """A query that has had its first batch."""
    writer = frame.writeStream.format("noop")
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    query.processAllAvailable()
    return query


def of_session(spark: Any) -> dict[int, list[int]]:
    java = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    return {
        server: forked
        for server, forked in planners().items()
        if Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[1] == str(java)
    }


def test_each_query_gets_a_fork_of_one_server(spark: Any, frame: Any, tmp_path: Path) -> None:
    """It ends with its query; the server stays for the next one."""
    seen = []
    for number in range(2):
        query = started(frame, tmp_path / f"c{number}")
        [(server, [planner])] = of_session(spark).items()
        seen.append((server, planner))
        query.stop()
        until(lambda: not planners()[server])  # noqa: B023 - it is called at once
    assert seen[0][0] == seen[1][0] and seen[0][1] != seen[1][1]


def test_streams_start_when_the_temporary_folder_was_cleaned(
    spark: Any, frame: Any, tmp_path: Path
) -> None:
    started(frame, tmp_path / "before").stop()
    launchers = {
        Path(word.decode()).parent
        for server in of_session(spark)
        for word in Path(f"/proc/{server}/cmdline").read_bytes().split(b"\0")
        if word.endswith(b"/planners")
    }
    assert launchers
    gone = [folder.rename(f"{folder}-gone") for folder in launchers]
    try:
        started(frame, tmp_path / "after").stop()
    finally:  # The other tests of this session have a launcher again.
        for folder in gone:
            folder.rename(str(folder).removesuffix("-gone"))
