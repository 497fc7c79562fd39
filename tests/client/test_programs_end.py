"""How programs end that close nothing: with status 0, and without a thread of Arrow's on the way.

A thread of Arrow's that holds the last reference to memory of Python's ends the process by SIGABRT
if the interpreter is on its way out. So no thread of Arrow's pools may be there at all.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from offsetlog.client.log import Log

NO_THREADS = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""NumPy's own."""

WHOLE_LIFE = """
import os, sys, threading, time
import numpy as np, pyarrow as pa
import offsetlog

root = sys.argv[1]
STRANGE = []

def foreign():
    "Threads that are not Python's; one of Python's may be on its way in or out."
    for _ in range(100):
        there = len(os.listdir("/proc/self/task")) - threading.active_count()
        if there <= known:
            break
        time.sleep(0.01)
    return there

known = 0
known = foreign()

def after(step):
    if foreign() > known and not STRANGE:
        STRANGE.append(step)

log = offsetlog.open(root)
delta = {"table.format": "delta", "segment.bytes": 1 << 20}
for name, config in (("plain", {}), ("keyed", {"cleanup.policy": "compact"}), ("table", delta)):
    log.create_topic(name, 2, config)
after("create")
rng = np.random.default_rng(1)
keys = pa.array([b"key %d" % i for i in range(20_000)], pa.binary())
values = pa.array([rng.bytes(50) for _ in range(20_000)], pa.binary())
headers = pa.array([[("a", b"1")]] * 20_000, pa.map_(pa.string(), pa.binary()))
table = pa.table({"key": keys, "value": values})
producer = log.producer()
for _ in range(3):
    for name in ("plain", "keyed", "table"):
        producer.send_arrow(name, table).result()
        producer.send(name, b"one", key=b"key 1", headers=[("h", b"x")]).result()
after("send")
reader = log.consumer(topics=["plain", "keyed"], auto_offset_reset="earliest")
while reader.poll_arrow():
    pass
after("poll_arrow")
member = log.consumer("g", ["plain"], auto_offset_reset="earliest")
for _ in range(30):
    member.poll(max_records=500)
    member.commit()
after("poll and commit")
log.group("g").describe()
log.group("g").reset("plain", to="earliest", dry_run=False)
log.positions()
after("groups")
reader.offsets_for_times({("plain", 0): 0})
reader.seek_to_time(0)
after("times")
log.topic("plain").erase([b"key 7"])
after("erase")
log.topic("plain").delete_records({0: 10})
for _ in range(2):
    log.maintain(grace_ms=0)
after("maintain")
log.topic("table").table()
after("table")
log.copy(root + "-copy")
log.copy(root + "-copy")
after("copy")
assert not [fault for report in log.verify() for fault in report.faults]
after("verify")
print("strange:", *STRANGE)
"""

SHORT = """
import sys
import pyarrow as pa
import offsetlog

log = offsetlog.open(sys.argv[1])
topic = sys.argv[2]
log.create_topic(topic)
producer = log.producer()
table = pa.table({"value": pa.array([b"x" * 50] * 20_000, pa.binary())})
for _ in range(8):
    producer.send_arrow(topic, table).result()
log.maintain(grace_ms=0)
consumer = log.consumer(topics=[topic], auto_offset_reset="earliest")
while consumer.poll_arrow():
    pass
print("done")
"""


def run(program: str, *given: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *map(str, given)]
    return subprocess.run(
        command, env=NO_THREADS, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are counted in /proc")
def test_no_thread_of_arrows_is_started(tmp_path: Path) -> None:
    ended = run(WHOLE_LIFE, tmp_path / "log")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "strange:\n", "")


def test_programs_that_close_nothing_end_with_0(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(lambda i: run(SHORT, tmp_path / "log", f"t{i}"), range(4)))
    assert [(one.returncode, one.stdout) for one in ended] == [(0, "done\n")] * 4, ended


WORKER = """
import sys, threading, time
import offsetlog

log = offsetlog.open(sys.argv[1])
log.create_topic("orders", 2)
other = offsetlog.open(sys.argv[1])

def work():
    threading.main_thread().join()
    producer = log.producer()
    consumer = log.consumer("g", ["orders"], auto_offset_reset="earliest")
    for number in range(70):
        producer.send("orders", b"%d" % number).result()
        consumer.poll()
        consumer.commit()
    # Many versions at once are read by several threads.
    late = other.consumer("g", ["orders"], auto_offset_reset="earliest")
    late.poll()
    late.close()
    consumer.close()
    other.copy(sys.argv[1] + "-copy")
    log.maintain(grace_ms=0)
    other.verify()
    log.close()
    print("done")

threading.Thread(target=work).start()
"""


def test_a_thread_that_goes_on_after_main_may_use_all(tmp_path: Path) -> None:
    ended = run(WORKER, tmp_path / "log")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


FEW_FILES = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
import offsetlog

log = offsetlog.open(sys.argv[1])
for number in range(30):
    log.create_topic(f"t{number}")
producer = log.producer()
for number in range(30):
    producer.send(f"t{number}", b"x")
producer.flush()
log.maintain(grace_ms=0)
own = [open("/dev/null") for _ in range(30)]
print(len(log.maintain()))
try:
    while True:
        own.append(open("/dev/null"))
except OSError:
    print("no more")
print(log.topic("t7").end_offsets())
"""


def test_few_files_are_enough_and_kept_folders_are_given_back(tmp_path: Path) -> None:
    ended = run(FEW_FILES, tmp_path / "log")
    assert (ended.stdout, ended.stderr) == ("30\nno more\n{0: 1}\n", "")


LITTLE_MEMORY = """
import resource, sys
import offsetlog

log = offsetlog.open(sys.argv[1])
consumer = log.consumer(topics=["t"], auto_offset_reset="earliest")
poll = getattr(consumer, sys.argv[2])
with open("/proc/self/status") as status:
    [size] = [int(line.split()[1]) << 10 for line in status if line.startswith("VmSize")]
resource.setrlimit(resource.RLIMIT_AS, (size + (16 << 20), -1))
try:
    poll()
except offsetlog.StorageError as error:
    print(error.message[:46])
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
print(sum(len(batch) for batch in iter(consumer.poll_arrow, {}) for batch in batch.values()))
"""


@pytest.mark.parametrize("method", ["poll", "poll_arrow"])
def test_too_little_memory_is_an_error_of_ours_and_moves_nothing(
    log: Log, root: Path, method: str
) -> None:
    log.create_topic("t", config={"compression.type": "none"})
    value = pa.array([os.urandom(1 << 20)] * 64, pa.binary())
    log.producer().send_arrow("t", pa.table({"value": value})).result()
    ended = run(LITTLE_MEMORY, root, method)
    said = "There is not enough memory for what was polled"
    assert (ended.stdout, ended.stderr) == (f"{said}\n64\n", "")
