"""The command line: one file a command group, over the client. ``main.main`` is its entry."""
