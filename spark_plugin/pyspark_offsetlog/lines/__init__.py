"""What differs between the lines of Spark, 4.0 to 4.3, and the parts of it that are not public.

Everything else in this package is the same code on all of them. Invariants:

1. A difference is found by what Spark has, not by its number, so that a vendor's Spark that took
   a change over early is treated as what it is.
2. Without a part that is not public everything works, only slower or with less said.
"""
