"""Plans proved the cheapest of their class, by mixed-integer programs.

May import ``solver.flat`` and ``solver.pareto``.
"""
