"""What to save and what to recompute, and when: :class:`fxremat.solver.peak.PeakSolver`.

May import ``base`` and ``problem``, never torch.
"""
