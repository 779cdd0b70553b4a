"""Where a search starts: cuts, cuts at prices over time, and schedules like those of rotor.

A new start goes here. May import ``problem``, ``solver.flat``, ``mincut`` and ``schedule``.
"""
