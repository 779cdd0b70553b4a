"""What lets an op run again: forms that may, and ops of the forward that keep what they need.

May import ``passes.analysis``.
"""
