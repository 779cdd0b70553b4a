"""From a problem to a plan: the planner, strategies, the choice within a budget, the pipeline.

May import ``frontend`` and all below it.
"""
