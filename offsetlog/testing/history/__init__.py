"""Was a history of sends, polls and commits one that a log may have? If not, which promise broke?

Programs write down what they ask for and what they are told, each into a file of its own::

    from offsetlog.testing import history

    with history.Recorder("run/producer-1.jsonl") as rec:
        with rec.send({("orders", 0): ["a", "b"]}) as sending:
            ...                                          # really send them
            sending.ok({("orders", 0): [17, 18]})

Whoever is killed in between leaves an operation with an unknown outcome, which is allowed to
have happened or not. Afterwards::

    faults = history.check("run")
    print(history.tell("run", faults))

or ``python -m offsetlog.testing.history run``.

Rules of this package:

1. A correct history is never blamed: where two explanations are possible, the innocent one
   is taken. So values are unique (a batch with a key may be sent again), times come from one
   clock, and ``complete`` says whether everything was read once at the end.
2. Each fault has a kind of ``Kind``, a sentence, and the operations that show it.
3. Files are read one after another, each line once; what is kept is a few numbers for each
   record that was sent, never the operations.
"""

from offsetlog.testing.history.check import check
from offsetlog.testing.history.events import Event, read_history
from offsetlog.testing.history.faults import Fault, Kind, Ref
from offsetlog.testing.history.recorder import Operation, Recorder
from offsetlog.testing.history.report import tell

__all__ = [
    "Event",
    "Fault",
    "Kind",
    "Operation",
    "Recorder",
    "Ref",
    "check",
    "read_history",
    "tell",
]
