"""Functions over plans for people: explanations, decisions, drawings, reports, dumps.

A new drawing goes into ``inspect.drawings``. May import ``planning`` and all below it.
"""
