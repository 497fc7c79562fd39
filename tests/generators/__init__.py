"""Generators of random histories of the whole product, each of a class of faults that the
simulation does not meet. ``registry.py`` lists them; all are run by ``make soak``."""
