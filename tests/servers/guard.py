"""Runs a command and ends it, with all it started, when standard input closes.

The tests hold the other end: however they end, the server ends too.
"""

import os
import signal
import subprocess
import sys
import threading


def main() -> int:
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)

    def watch() -> None:
        os.read(0, 1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    return child.wait()


if __name__ == "__main__":
    sys.exit(main())
