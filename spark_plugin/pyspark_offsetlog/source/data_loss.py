"""What becomes of a query whose records are gone.

Invariants:

1. With ``failOnDataLoss`` it is an error; without, a warning, once for each thing that is lost,
   and the query goes on with what there is.
"""

from __future__ import annotations

from offsetlog.errors import OffsetOutOfRangeError
from pyspark_offsetlog.runtime.user_errors import warn


class DataLoss:
    def __init__(self, fails: bool) -> None:
        self._fails = fails
        self._told: set[str] = set()

    def __call__(self, what: str) -> None:
        """Records that were asked for are gone."""
        if self._fails:
            raise OffsetOutOfRangeError(
                what, "Set failOnDataLoss=false to go on with what is there."
            )
        if what not in self._told:
            self._told.add(what)
            warn(f"{what} failOnDataLoss is false, so the query goes on.")
