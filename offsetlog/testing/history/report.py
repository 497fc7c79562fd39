"""The judgement as a text that a person can follow.

1. First one line for each kind of fault with how many; then each fault with the operations that
   show it, in the order of time.
2. The history is read once more, and only the operations that are told are kept.
3. ``python -m offsetlog.testing.history FOLDER`` prints it and exits 1 if there is a fault.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from offsetlog.testing.history.check import check
from offsetlog.testing.history.events import Event, History, read_history
from offsetlog.testing.history.faults import Fault, Ref

TOLD = 20
"""Faults that are told at length."""
_WIDE = 150

Line = tuple[int, str]


def tell(history: History, faults: Iterable[Fault], told: int = TOLD) -> str:
    """The faults of a history, each with its story."""
    faults = list(faults)
    if not faults:
        return "No fault was found."
    counts = Counter(fault.kind for fault in faults)
    out = [f"{count:6,}  {kind}" for kind, count in counts.items()]
    shown = faults[:told]
    operations = _operations(history, {ref for fault in shown for ref in fault.evidence})
    begin = min((line[0] for lines in operations.values() for line in lines), default=0)
    for number, fault in enumerate(shown, 1):
        out += ["", f"{number}. {fault}"]
        lines = sorted(line for ref in fault.evidence for line in operations.get(ref, ()))
        out += [f"   {(at - begin) / 1e9:10.6f} s  {text}" for at, text in lines]
    if len(faults) > len(shown):
        out += ["", f"{len(faults) - len(shown):,} more faults are not told."]
    return "\n".join(out)


def _operations(history: History, wanted: set[Ref]) -> dict[Ref, list[Line]]:
    found: dict[Ref, list[Line]] = {}
    kinds: dict[Ref, str] = {}
    for event in read_history(history):
        ref = Ref(event.process, event.n)
        if ref in wanted:
            if event.kind:
                kinds[ref] = event.kind
            line = (event.at, _line(event, kinds.get(ref, "")))
            found.setdefault(ref, []).append(line)
    for ref, lines in found.items():
        if len(lines) == 1 and not lines[0][1].startswith(f"{ref.process}: "):
            lines.append((lines[0][0], f"{ref.process} never heard how that ended"))
    return found


def _line(event: Event, kind: str) -> str:
    who = event.process
    if event.step == "do":
        return f"{who} begins {_short(kind, event.what)}"
    if event.step == "did":
        return f"{who}: {_short(kind, event.what)}"
    if event.step == "ok":
        return f"{who} is told, of its {kind}: {_short('ok', event.what)}"
    why = "that it failed" if event.step == "fail" else "nothing certain"
    return f"{who} is told, of its {kind}: {why}"


def _short(word: str, what: Any) -> str:
    pairs: Iterator[str]
    if isinstance(what, dict):
        inner = what.get("records") or what
        pairs = (
            f"{key}={json.dumps(said)}" for key, said in inner.items() if said not in (None, "")
        )
    else:
        pairs = iter(())
    text = f"{word} {' '.join(pairs)}".strip()
    return text if len(text) <= _WIDE else text[: _WIDE - 3] + "..."


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m offsetlog.testing.history")
    parser.add_argument("folder", help="where the recorders' files are, or one file")
    parser.add_argument("--incomplete", action="store_true", help="not all was read at the end")
    parser.add_argument("--told", type=int, default=TOLD, help="faults that are told at length")
    given = parser.parse_args(arguments)
    faults = check(given.folder, complete=not given.incomplete)
    print(tell(given.folder, faults, given.told))
    return 1 if faults else 0
