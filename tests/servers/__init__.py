"""Servers that the tests start for themselves: one module for each, one fixture for each.

1. Every server listens on 127.0.0.1 only, on a port that was free a moment ago.
2. It is waited for with a deadline, ended by its process group, and leaves no file behind.
3. A guard process ends it when the tests are killed.
"""
