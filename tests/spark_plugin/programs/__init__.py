"""Drivers that the tests start: a process has one Spark, and these are other ones."""
