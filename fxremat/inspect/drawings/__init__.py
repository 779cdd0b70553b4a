"""Graphs and charts of plans: as text for graphviz, as SVG, and as specifications of Vega-Lite."""

from fxremat.plans.plan import Plan

__all__ = ["to_dot"]


def to_dot(plan: Plan) -> str:
    """The joint graph with the cut, as text for graphviz."""
    from fxremat.inspect.drawings import dot, graphs  # not needed to train

    return dot.to_dot(graphs.joint_graph(plan))
