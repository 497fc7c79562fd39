"""The algebra of consumer groups: what the facts about a group add up to.

Functions over frozen values. Nothing here does I/O, asks a clock, draws a random number, or knows
Arrow, Delta, Spark or a filesystem. A writer of facts repeats one loop: read the new facts,
``fold`` them, ``decide`` the requests against that very version, append at exactly the next one,
and on a conflict begin again.
"""
