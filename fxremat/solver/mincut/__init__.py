"""The save-or-recompute choice at given prices, as a certified minimum cut.

May import ``base`` and ``problem``.
"""
