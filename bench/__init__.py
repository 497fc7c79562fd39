"""How fast and how small: every figure next to a floor or a peer measured in the same run.

1. A figure is a ratio, ``ours / peer``, and says whether it should be high or low.
2. Ours and the peer take turns, round by round, after a warm-up; what is reported are medians.
3. Nothing is quoted from elsewhere: a peer that cannot run here has no row.
4. The library is imported only by the figures that call it, when they run.
"""
