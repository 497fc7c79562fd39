"""What the frames of a log say when they cannot be made."""

from __future__ import annotations

from typing import Any

import pytest

import offsetlog
from offsetlog.errors import InvalidRequestError
from pyspark_offsetlog.about.about_frames import offsets_frame, place_of
from pyspark_offsetlog.schema import source_schema
from pyspark_offsetlog.source.stream import OffsetLogStreamReader


def test_a_password_in_an_address_is_not_shown() -> None:
    root = "memory://me:hunter2@frames"
    with offsetlog.open(root) as log:
        log.create_topic("orders")
    no_spark: Any = None
    with pytest.raises(InvalidRequestError, match="is not read through Delta") as failed:
        offsets_frame(no_spark, place_of(root, None, {}), None, delta=True)
    assert "hunter2" not in str(failed.value)


def test_a_table_is_no_stream() -> None:
    reader = OffsetLogStreamReader({"path": "/log", "table": "lag"}, source_schema(False))
    with pytest.raises(InvalidRequestError, match="table=lag is set for a stream") as failed:
        reader.initialOffset()
    assert "spark.read" in failed.value.hint
