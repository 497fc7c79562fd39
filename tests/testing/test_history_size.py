"""The checker of histories on a large one: in seconds, and in little memory.

Run as a program with a folder and a number of operations it writes such a history, and times it.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time

from offsetlog.testing import history


def test_a_large_history_is_judged_in_seconds_and_little_memory(tmp_path):
    """A tenth of a million operations; a million take ten times as long."""
    operations = write_large(tmp_path, 100_000)
    program = (
        "import resource, sys, time; from offsetlog.testing import history\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "began = time.process_time(); faults = history.check(sys.argv[1])\n"
        "grew = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before\n"
        "print(len(faults), time.process_time() - began, grew)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    faults, seconds, kilobytes = done.stdout.split()
    print(f"{operations:,} operations in {float(seconds):.2f} s, {int(kilobytes) / 1024:.0f} MiB")
    assert int(faults) == 0
    assert float(seconds) < 20
    assert int(kilobytes) < 120_000


def write_large(folder, operations):
    """Senders of one record at a time, readers of ten, a member that commits."""
    rng = random.Random(3)
    senders, partitions = 8, 16
    files = {
        name: (folder / f"{name}.jsonl").open("w")
        for name in [f"s{i}" for i in range(senders)] + ["r0", "r1", "last"]
    }
    for name, file in files.items():
        file.write(json.dumps({"history": 1, "process": name}) + "\n")
    now = done = 0
    ends = [0] * partitions
    values: list[list[str]] = [[] for _ in range(partitions)]
    at = {name: [0] * partitions for name in ("r0", "r1", "last")}

    def op(name, kind, given, answer):
        nonlocal now, done
        now, done = now + 2, done + 1
        files[name].write(json.dumps({"n": done, "at": now, "do": kind, "with": given}) + "\n")
        files[name].write(json.dumps({"n": done, "at": now + 1, "ok": answer}) + "\n")

    def poll(name, most):
        p = rng.randrange(partitions)
        low = at[name][p]
        take = values[p][low : low + most]
        at[name][p] += len(take)
        answer = {f"t/{p}": [list(range(low, low + len(take))), take]}
        op(name, "poll", {"consumer": "", "group": "g"}, answer)

    while done < operations:
        name = f"s{rng.randrange(senders)}"
        p = rng.randrange(partitions)
        value = f"{name}/{done}"
        values[p].append(value)
        op(name, "send", {"records": {f"t/{p}": [value]}}, {f"t/{p}": [ends[p]]})
        ends[p] += 1
        if done % 4 == 0:
            poll(rng.choice(("r0", "r1")), 10)
        if done % 50 == 0:
            op("r0", "commit", {"group": "g", "offsets": {"t/0": at["r0"][0]}}, None)
            op("r1", "committed", {"group": "g"}, {"t/0": at["r0"][0]})
            op("r1", "ends", {}, {f"t/{p}": end for p, end in enumerate(ends)})
    while any(at["last"][p] < ends[p] for p in range(partitions)):
        poll("last", 500)
    for file in files.values():
        file.close()
    return done


if __name__ == "__main__":
    from pathlib import Path

    total = write_large(Path(sys.argv[1]), int(sys.argv[2]))
    began = time.monotonic()
    print(len(history.check(sys.argv[1])), "faults")
    print(f"{total:,} operations in {time.monotonic() - began:.1f} s")
