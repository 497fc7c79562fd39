"""The algebra of topics and groups: values in, values out. No I/O, clock, chance or Arrow."""
