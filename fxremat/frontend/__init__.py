"""From a model to a problem: tracing, building the problem, fusion, regions, where ops come from.

May import ``options`` and all below it; regions solve small cuts of ``solver``.
"""
