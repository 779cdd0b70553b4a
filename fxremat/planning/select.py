"""From what was asked for to a plan; what cannot be had is said."""

from __future__ import annotations

import warnings
from dataclasses import replace

from fxremat.base.budget import resolve
from fxremat.base.errors import BudgetError
from fxremat.base.units import format_bytes
from fxremat.frontend.analyze import Prepared
from fxremat.options import Options
from fxremat.planning.assign import ALONE, Room
from fxremat.planning.feedback import NO_FEEDBACK, Feedback
from fxremat.planning.planner import Planner, planner_of
from fxremat.planning.reapply import recall
from fxremat.planning.strategies import strategy
from fxremat.plans.frontier import knee
from fxremat.plans.plan import Plan
from fxremat.problem.liveness import occupancy
from fxremat.solver.exact.solve import solve_several
from fxremat.solver.pareto import Point
from fxremat.solver.peak_solver import PeakSolver

__all__ = ["decide"]

NAMED = 5  # values that an error lists


def decide(
    ready: Prepared,
    feedback: Feedback = NO_FEEDBACK,
    room: Room = ALONE,
) -> Plan:
    """The plan that the options of a graph ask for.

    Args:
        ready: the graph.
        feedback: what is known of what the inner compiler makes of the graph.
        room: what the other graphs of the step leave to this one.

    Raises:
        BudgetError: if no plan meets the budget and the options don't take the closest.
        RewriteError: if the options give plans, and none is for this graph.
        OptionError: for a strategy that needs blocks where there are none.
    """
    options, planner = ready.options, planner_of(ready)
    if options.plan is not None:
        return recall(planner, options.plan)
    if options.strategy is not None:
        point = _by_hand(planner, options)
        return replace(planner.plan(point, None), reserved=room.reserved)
    limit, point = _choose(planner.solver, options, feedback, room)
    proved = True
    if options.solver == "exact" and point.seconds > 0:
        point, proved = _prove(planner.solver, limit, point, options, feedback.margin)
    complete = proved and not planner.solver.timed_out
    return replace(planner.plan(point, limit, complete=complete), reserved=room.reserved)


def _by_hand(planner: Planner, options: Options) -> Point:
    if options.strategy != "auto":
        return strategy(planner.context, str(options.strategy), options.k)
    points = sorted(planner.solver.frontier(), key=lambda p: -p.peak)
    step = planner.context.problem.step_seconds
    return points[knee([(p.peak, p.seconds) for p in points], step)]


def _choose(
    solver: PeakSolver, options: Options, feedback: Feedback, room: Room
) -> tuple[int | None, Point]:
    """The limit in bytes and the plan for it, below by the margin if there is one."""
    if options.budget.smallest:
        return None, solver.least()
    baseline = solver.baseline.peak if feedback.baseline is None else feedback.baseline
    resolved = resolve(options.budget, baseline, room.reserved, feedback.margin)
    found = solver.solve(2**62 if resolved.target is None else resolved.target)
    if found is not None:
        return resolved.nbytes, found
    limit = resolved.nbytes
    least = solver.least()
    if limit is not None and (least.peak <= limit or feedback.baseline is not None):
        return limit, least
    whole = options.budget.nbytes  # what is left of it may be too little; so may not be all of it
    if room.shared and (whole is None or least.peak <= whole):
        return limit, least
    message = _too_small(solver, limit or 0, least)
    if options.on_infeasible == "raise":
        raise BudgetError(message, asked=limit, least=least.peak)
    warnings.warn(message, stacklevel=2)
    return limit, least


def _prove(
    solver: PeakSolver, limit: int | None, point: Point, options: Options, margin: int
) -> tuple[Point, bool]:
    """The cheapest plan of its class, and whether that is proved within the time limit."""
    within = point.peak if limit is None else max(limit - margin, point.peak)
    left = None if options.time_limit is None else max(0.1, solver.seconds_left)
    found = solve_several(solver.problem, within, time_limit=left, start=point.schedule)
    return found.point or point, found.proved


def _too_small(solver: PeakSolver, limit: int, least: Point) -> str:
    problem = solver.problem
    line = occupancy(problem, least.schedule)
    where = problem.ops[line.ops[line.peak_position]].name
    workspace = line.workspace[line.peak_position]
    beside = f" with {format_bytes(workspace)} of workspace" if workspace else ""
    live = ", ".join(
        f"{problem.values[i.value].name} ({format_bytes(i.nbytes)})"
        for i in line.at(line.peak_position)[:NAMED]
    )
    return (
        f"no plan found within {limit} bytes ({format_bytes(limit)}); the least peak found is "
        f"{least.peak} bytes ({format_bytes(least.peak)}), while {where} runs{beside}, where the "
        f"largest live values are {live}. Ask for at least {least.peak} bytes, for budget='min', "
        "or shrink the batch"
    )
