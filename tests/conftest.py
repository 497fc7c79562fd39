"""Makes the tests' servers known to every test."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[1])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

pytest_plugins = ["tests.servers.fixtures"]
