"""What Spark logs of an error of ours has no Java trace, where offsetlog built the session."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark_plugin.drivers import drive


@pytest.mark.every_line
def test_only_errors_of_ours_lose_their_trace(tmp_path: Path) -> None:
    told = drive("log_of_errors", tmp_path)
    assert "null in column 'topic'" in told["failed"] and "topic 'b'" in told["ended"]
    ours, others = (tmp_path / "output.log").read_text().split("somebody else's error")
    assert "Lost task" in ours and "rows have a null in column 'topic'" in ours
    assert "MicroBatchExecution: Query" in ours
    assert "\tat " not in ours.split("a null topic")[1]
    assert "\tat org.apache.spark" in others
    assert "INFO" not in ours
