"""Runs a command and ends it, with all it started, when standard input closes.

The tests hold the other end: however they end, the server ends too, and its folder goes.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading


def main() -> int:
    # The server ends first, and its files with it; a handler, since ignoring would be inherited.
    signal.signal(signal.SIGTERM, lambda *_: None)
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    orphaned = threading.Event()

    def watch() -> None:
        os.read(0, 1)
        orphaned.set()
        child.kill()

    threading.Thread(target=watch, daemon=True).start()
    code = child.wait()
    if orphaned.is_set():
        shutil.rmtree(os.getcwd(), ignore_errors=True)
        os.killpg(0, signal.SIGKILL)
    return code


if __name__ == "__main__":
    sys.exit(main())
