"""The parts of ``tests.simulation.run``: fibers, a world of files, actors, an oracle."""
