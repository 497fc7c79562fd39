"""Sessions, pickling, errors, and the logs that a process has open."""
