"""What a user sets with ``.option(...)``."""
