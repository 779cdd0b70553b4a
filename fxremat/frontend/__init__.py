"""From a model to a problem: tracing, building the problem, fusion, regions, where ops come from.

May import ``costs``, ``constraints``, ``options`` and all below them.
"""
