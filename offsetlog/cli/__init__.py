"""The command line: one file for each command; ``main.main`` is the entry point.

Everything that is printed goes through ``output``.
"""
