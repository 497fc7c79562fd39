"""Ours and the peers inside Spark: one session, the same rows, the same jobs."""
