"""The story that ``offsetlog demo`` tells with Spark.

``driver`` is a program as a user would write it, started as a process of its own, so that it
can be killed. ``story`` runs it, ``ledger`` is where its results lie, ``screen`` shows it.
"""
