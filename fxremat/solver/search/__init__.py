"""Local search within a limit: evict, restore, destroy, and the neighbourhood search over them.

May import all other rooms of ``solver`` but ``solver.peak``.
"""
