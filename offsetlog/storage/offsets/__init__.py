"""Where the facts of consumer groups are kept: the port, and the two kinds of table behind it."""
