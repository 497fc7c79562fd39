"""One topic that is open: its chain, its stored states, reading it, changing it."""
