"""The rematerialization problem as data, and the replay that says what a schedule holds.

Solvers see nothing else. May import ``base`` and ``passes.phases``, never torch.
"""
