"""A reader on a worker that lacks offsetlog, or has another version: one line says so."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import LongType, StructField, StructType

import offsetlog
from pyspark_offsetlog.about.tables import TableReader
from pyspark_offsetlog.datasource import OffsetLogDataSource
from pyspark_offsetlog.options.check import sink_options, source_options
from pyspark_offsetlog.schema import source_schema
from pyspark_offsetlog.sink.writers import BatchWriter, StreamWriter
from pyspark_offsetlog.source.batch import OffsetLogReader
from pyspark_offsetlog.source.stream import OffsetLogStreamReader
from tests.servers.process import ROOT

SHAPE = StructType([StructField("offset", LongType())])


def _travellers(root: str) -> list[Any]:
    read = {"path": root, "subscribe": "orders"}
    write = sink_options({"path": root, "topic": "orders"})
    rows = source_schema(False)
    return [
        OffsetLogReader(source_options(read, False), SHAPE),
        OffsetLogStreamReader(read, SHAPE),
        BatchWriter(write, rows),
        StreamWriter(write, rows),
        TableReader({"path": root, "table": "lag"}, StructType()),
        OffsetLogDataSource(read),
    ]


@pytest.fixture
def root(root: Path) -> str:
    with offsetlog.open(str(root)) as log:
        log.create_topic("orders")
    return str(root)


def test_where_all_is_there_it_arrives(root: str) -> None:
    for sent in _travellers(root):
        got = cloudpickle.loads(cloudpickle.dumps(sent))
        assert type(got) is type(sent)
        kept = {k: v for k, v in sent.__dict__.items() if k != "pushFilters"}
        assert got.__dict__.keys() == kept.keys()


def test_the_class_that_is_registered_arrives_too() -> None:
    assert cloudpickle.loads(cloudpickle.dumps(OffsetLogDataSource)) is OffsetLogDataSource
    assert pickle.loads(pickle.dumps(OffsetLogDataSource)) is OffsetLogDataSource


def _on_a_worker(sent: Any, place: Path, prepare: str) -> str:
    (place / "sent").write_bytes(cloudpickle.dumps(sent))
    program = (
        f"import sys\n{prepare}\nfrom pyspark import cloudpickle\n"
        f"cloudpickle.loads(open({str(place / 'sent')!r}, 'rb').read())"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=place,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


def test_a_worker_without_offsetlog(root: str, tmp_path: Path) -> None:
    for sent in (*_travellers(root)[:3], _travellers(root)[-1], OffsetLogDataSource):
        told = _on_a_worker(sent, tmp_path, "sys.modules['offsetlog'] = None")
        assert f"{sys.executable}, has no offsetlog" in told
        assert f"Install offsetlog=={offsetlog.__version__} there" in told


def test_a_worker_with_another_version(root: str, tmp_path: Path) -> None:
    [sent, *_] = _travellers(root)
    change = "import offsetlog; offsetlog.__version__ = '0.0.1'"
    told = _on_a_worker(sent, tmp_path, change)
    assert f"has offsetlog 0.0.1; the driver has {offsetlog.__version__}" in told
    assert _on_a_worker(sent, tmp_path, "") == ""


def test_what_offsetlog_itself_lacks_is_not_hidden(root: str, tmp_path: Path) -> None:
    [sent, *_] = _travellers(root)
    assert "xxhash" in _on_a_worker(sent, tmp_path, "sys.modules['xxhash'] = None")
