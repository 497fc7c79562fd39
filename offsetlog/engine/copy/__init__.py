"""A sound copy of a log in use, on any filesystem, under a root id of its own."""
