"""The story of ``offsetlog demo``, with Spark or without.

``story`` has its chapters, shown on a ``screen``. On the ``stage`` are its programs:
``senders`` (shops; with Spark also files), ``readers`` (two workers, or Spark) and a ``tail``.
``shop``, ``worker`` and ``spark_queries`` are programs as a user would write them, each a
process of its own, so that it can be killed. They send ``orders`` and do the ``billing``;
``reckoning`` counts everything at the end.
"""
