"""What goes to Spark's workers, and says so itself where it cannot be understood.

Invariants:

1. ``arrive`` travels by value: it runs on a worker whose Python has no offsetlog, or another
   version, and says which Python that is and what to do. So it uses nothing of this package.
2. So does the data source's class, which ``register`` sends before there is any object.
3. All else travels by reference, as Spark does it anyway.
"""

from __future__ import annotations

import copyreg
import pickle
import sys
from abc import ABCMeta
from typing import Any

from pyspark import cloudpickle

import offsetlog

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


class PickledWithReason:
    """What Spark sends to workers: pickled so that a worker which lacks us can say so."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        state = self.__getstate__()
        return arrive, (offsetlog.__version__, pickle.dumps((type(self), state)))


class ReasonedUnpickling(ABCMeta):
    """Of a class that is sent itself."""


def _send_class(kind: ReasonedUnpickling) -> tuple[Any, ...]:
    return arrive, (offsetlog.__version__, b"", kind.__module__, kind.__qualname__)


copyreg.pickle(ReasonedUnpickling, _send_class)


def arrive(version: str, pickled: bytes, module: str = "", name: str = "") -> Any:
    """The object, or the class of that name, on a worker that has what it needs."""
    import importlib
    import os
    import pickle
    import sys

    found = None
    try:
        import offsetlog
        import pyspark_offsetlog  # noqa: F401

        found = offsetlog.__version__
    except ImportError as error:
        if str(getattr(error, "name", "")).partition(".")[0] not in (
            "offsetlog",
            "pyspark_offsetlog",
        ):
            raise
    if found != version:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        has = "no offsetlog" if found is None else f"offsetlog {found}"
        raise ImportError(
            f"The Python of this Spark worker, {sys.executable}, has {has}; the driver has "
            f"{version}. Install offsetlog=={version} there, or let Spark start a Python that has "
            "it: set PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON to its path before the session "
            "starts, or give it to offsetlog.spark.session(config={'spark.pyspark.python': path})."
        )
    if name:
        return getattr(importlib.import_module(module), name)
    kind, state = pickle.loads(pickled)
    new = kind.__new__(kind)
    new.__dict__.update(state)
    return new
