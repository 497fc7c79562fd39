"""The Java of the tests: programs that use the jar's classes without Spark."""
