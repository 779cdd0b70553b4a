"""What to save and what to recompute, and when: :class:`fxremat.solver.peak_solver.PeakSolver`.

May import ``base`` and ``problem``, never torch.
"""
