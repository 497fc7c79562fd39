"""Programs that the contention figures run side by side, one process each."""
