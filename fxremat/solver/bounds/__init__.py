"""Bytes and seconds below which no plan goes, from minimum cuts.

May import ``solver.mincut`` and ``solver.flat``.
"""
