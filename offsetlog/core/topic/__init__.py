"""The algebra of a topic: what its chain of entries means.

Functions over frozen values. Nothing here does I/O, asks a clock, draws a random number,
or knows Arrow, Spark or a filesystem.
"""
