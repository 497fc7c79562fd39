"""``python -m offsetlog.testing.history FOLDER``."""

import sys

from .report import main

sys.exit(main())
