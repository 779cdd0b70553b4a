"""Local search within a limit: evict, restore, destroy, and the neighbourhood search over them.

May import all other packages of ``solver`` but ``solver.peak_solver``.
"""
