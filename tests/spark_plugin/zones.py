"""The time zone of Spark's JVM in the tests, which is neither UTC nor that of the session.

A JVM takes times for its own zone's in more places than Spark does, which a JVM in UTC never shows.
Each zone here once had a local mean time, which Java's old calendar does not know: a time before
1900 that goes through a ``java.sql.Timestamp`` comes out as another one. The zones take turns by
the day, so the runs of a day agree; ``ZONE=Asia/Kolkata`` in the environment chooses one.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from datetime import UTC, datetime
from zoneinfo import available_timezones

import pytest

ZONES = (
    "America/Los_Angeles",
    "Asia/Kolkata",
    "Europe/Amsterdam",
    "Australia/Lord_Howe",
    "America/St_Johns",
    "Pacific/Apia",
)
VARIABLE = "ZONE"
OPTIONS = "SPARK_SUBMIT_OPTS"
"""Each JVM that PySpark or spark-submit starts gets these, and no Python does."""


def choose(environment: MutableMapping[str, str] = os.environ) -> str:
    """The zone of this run, which is set in the environment for all its processes."""
    turn = datetime.now(UTC).toordinal() % len(ZONES)
    zone = environment.get(VARIABLE) or ZONES[turn]
    if zone not in available_timezones():
        raise pytest.UsageError(f"{VARIABLE}={zone} is no time zone. Ours: {', '.join(ZONES)}")
    environment[VARIABLE] = zone
    option = f"-Duser.timezone={zone}"
    if option not in environment.get(OPTIONS, "").split():
        environment[OPTIONS] = f"{environment.get(OPTIONS, '')} {option}".strip()
    return zone
