"""A joint graph into forward and backward by a schedule, and the check of both halves.

May import ``passes.analysis`` and ``passes.recompute``.
"""
