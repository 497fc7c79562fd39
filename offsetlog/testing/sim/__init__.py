"""The parts of ``offsetlog.testing.simulation``: fibers, a world of files, actors, an oracle."""
