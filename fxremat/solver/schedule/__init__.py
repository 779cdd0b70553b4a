"""A schedule that can be changed: runs put in, taken out and moved, live bytes kept up to date.

May import ``solver.flat``.
"""
