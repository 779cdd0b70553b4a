"""Plans proved the cheapest of their class, by mixed-integer programs.

May import ``problem``, ``solver.flat`` and ``solver.pareto``.
"""
