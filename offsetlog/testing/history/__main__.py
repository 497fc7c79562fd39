"""``python -m offsetlog.testing.history FOLDER``."""

import sys

from offsetlog.testing.history.report import main

sys.exit(main())
