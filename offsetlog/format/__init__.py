"""Bytes and names on the one side, values on the other. See ``SPEC.md`` beside this file."""

FORMAT_VERSION = 1
"""Of the root, entries, segments and snapshots that this code writes."""
