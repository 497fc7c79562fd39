"""Other systems that do the same work, started here for the length of a case."""
