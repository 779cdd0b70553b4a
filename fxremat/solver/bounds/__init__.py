"""Bytes and seconds below which no plan goes, from minimum cuts.

May import ``problem``, ``solver.flat`` and ``solver.mincut``.
"""
