"""Delta tables, read and written by Delta's own protocol."""
