"""Plans from files, applied again to the graphs that they were made for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fxremat.base.errors import RewriteError
from fxremat.planning.planner import Planner
from fxremat.plans.parts import Decision
from fxremat.plans.plan import Plan
from fxremat.problem.context import Context
from fxremat.solver.pareto import Point

__all__ = ["recall"]


def recall(planner: Planner, plans: Sequence[Decision]) -> Plan:
    """The one of some plans that is for a graph, with the graph's own costs and predictions.

    Raises:
        RewriteError: if none is, or its schedule is none of the graph's.
    """
    found = next((p for p in plans if p.graph == planner.graph), None)
    if found is None:
        raise _foreign(planner, plans)
    ops = planner.context.op_index
    unknown = next((name for name in found.backward_schedule if name not in ops), None)
    if unknown is not None:
        raise RewriteError("the plan's schedule runs it, but the graph has no such op", unknown)
    try:
        point = Point.of(planner.context.problem, [ops[name] for name in found.backward_schedule])
    except ValueError as error:
        raise RewriteError(
            f"the plan's schedule cannot run: {error}. It has been changed since it was planned; "
            "plan the model again"
        ) from error
    return replace(
        planner.plan(point, found.budget), reserved=found.reserved, complete=found.complete
    )


def _foreign(planner: Planner, plans: Sequence[Decision]) -> RewriteError:
    """What tells the graph from that of the plan which is most like it."""
    mine = planner.context.op_index
    nearest = max(plans, key=lambda p: len(mine.keys() & {*p.forward, *p.backward_schedule}))
    what, node = _difference(planner.context, nearest)
    several = "none of the plans is" if len(plans) > 1 else "the plan is not"
    return RewriteError(
        f"{several} for this graph ({planner.graph}, the plan's is {nearest.graph}): {what}. Plan "
        "this model, with these inputs and this inner compiler, again",
        node,
    )


def _difference(mine: Context, other: Decision) -> tuple[str, str]:
    """The first difference between a graph and that of another plan, and the node it is at."""
    gone = next(
        (n for n in (*other.forward, *other.backward_schedule) if n not in mine.op_index), ""
    )
    if gone:
        return f"the plan runs {gone}, which the graph lacks", gone
    if isinstance(other, Plan):
        theirs = other.context
        for op in mine.problem.ops:
            here, there = mine.origin(op.name), theirs.origin(op.name)
            if op.name not in theirs.op_index:
                return f"the graph has {op.name} ({here.op}), which the plan does not know", op.name
            if (here.op, here.shape) != (there.op, there.shape):
                said = (
                    f"{here.op} {here.shape} in the graph and {there.op} {there.shape} in the plan"
                )
                return f"{op.name} is {said}", op.name
    first = mine.problem.ops[0].name if mine.problem.ops else ""
    return "the ops have the same names, but other arguments or inputs of other sizes", first
