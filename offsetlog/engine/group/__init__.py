"""The offsets table, and membership of a group."""
