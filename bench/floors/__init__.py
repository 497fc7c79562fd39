"""Floors: the least that any program must pay for the same bytes on the same machine."""
