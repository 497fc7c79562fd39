"""What drives the core: effects, threads, locks and waits live here."""
