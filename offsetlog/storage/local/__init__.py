"""The local disk."""
