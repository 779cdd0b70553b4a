"""Plans from files, applied again to the graphs that they were made for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fxremat.base.errors import RewriteError
from fxremat.planning.planner import Planner
from fxremat.plans.plan import Plan
from fxremat.solver.pareto import Point

__all__ = ["recall"]


def recall(planner: Planner, plans: Sequence[Plan]) -> Plan:
    """The one of some plans that is for a graph, with the graph's own costs and predictions.

    Raises:
        RewriteError: if none is.
    """
    found = next((p for p in plans if p.graph == planner.graph), None)
    if found is None:
        raise _foreign(planner, plans)
    ops = planner.context.op_index
    point = Point.of(planner.context.problem, [ops[name] for name in found.backward_schedule])
    return replace(
        planner.plan(point, found.budget), reserved=found.reserved, complete=found.complete
    )


def _foreign(planner: Planner, plans: Sequence[Plan]) -> RewriteError:
    """What tells the graph from that of the plan which is most like it."""
    mine = [op.name for op in planner.context.problem.ops]
    nearest = max(plans, key=lambda p: len({*p.forward, *p.backward_schedule}.intersection(mine)))
    named = {*nearest.forward, *nearest.backward_schedule}
    gone = next((n for n in (*nearest.forward, *nearest.backward_schedule) if n not in mine), None)
    late = {op.name for op in planner.context.problem.ops if not op.outputs}
    new = next((n for n in mine if n not in named | late), None)
    if gone is not None:
        what, node = f"the plan runs {gone}, which the graph lacks", gone
    elif new is not None:
        what, node = f"the graph has {new}, which the plan does not run", new
    else:
        what, node = "the ops have the same names, but other sizes, dtypes or arguments", mine[0]
    several = "none of the plans is" if len(plans) > 1 else "the plan is not"
    return RewriteError(
        f"{several} for this graph ({planner.graph}, the plan's is {nearest.graph}): {what}. Plan "
        "this model, with these inputs and this inner compiler, again",
        node,
    )
