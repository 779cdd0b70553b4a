"""From a budget to a schedule: the solver is asked, and what cannot be had is said."""

from __future__ import annotations

import warnings

from .budget import Budget, format_bytes
from .errors import BudgetError
from .options import Options
from .problem import Problem
from .solvers.exact import solve_several
from .solvers.peak import PeakSolver
from .solvers.pool import Point
from .timeline import Timeline, copies, replay

__all__ = ["choose", "prove"]


def choose(
    solver: PeakSolver, options: Options, margin: int, held: int
) -> tuple[int | None, Point]:
    """The limit in bytes and the plan for it, ``margin`` bytes below if there is one."""
    budget: Budget = options.budget
    if budget.smallest:
        return None, solver.least()
    limit = budget.limit(solver.baseline.peak)
    if limit is not None and budget.nbytes is not None:
        limit -= held
    found = solver.solve(2**62 if limit is None else limit - margin)
    if found is not None:
        return limit, found
    least = solver.least()
    if limit is not None and least.peak <= limit:
        return limit, least
    message = _too_small(solver, limit or 0, least)
    if held and limit is not None and least.peak <= limit + held:
        # What the other graphs hold was settled before this one was known.
        warnings.warn(
            f"the step exceeds its budget by {format_bytes(least.peak - limit)}: other graphs hold "
            f"{format_bytes(held)} for their backward, and this one needs "
            f"{format_bytes(least.peak)} at least; avoid the graph break, or give a smaller budget",
            stacklevel=2,
        )
        return limit, least
    if options.on_infeasible == "raise":
        raise BudgetError(message, asked=limit, least=least.peak)
    warnings.warn(message, stacklevel=2)
    return limit, least


def prove(
    solver: PeakSolver, limit: int | None, point: Point, options: Options, margin: int
) -> tuple[Point, bool]:
    """The cheapest plan of its class, and whether that is proved within the time limit."""
    within = point.peak if limit is None else max(limit - margin, point.peak)
    left = None if options.time_limit is None else max(0.1, solver.seconds_left)
    found = solve_several(solver.problem, within, time_limit=left, start=point.schedule)
    return found.point or point, found.proved


def _too_small(solver: PeakSolver, limit: int, least: Point) -> str:
    problem = solver.problem
    timeline = replay(problem, least.schedule)
    where, live = _at_peak(problem, least, timeline)
    return (
        f"no plan found within {limit} bytes ({format_bytes(limit)}); the least peak found is "
        f"{least.peak} bytes ({format_bytes(least.peak)}), while {where} runs, where the largest "
        f"live values are {live}. Ask for at least {least.peak} bytes, for budget='min', or "
        "shrink the batch"
    )


def _at_peak(problem: Problem, point: Point, timeline: Timeline) -> tuple[str, str]:
    if max(timeline.forward, default=0) >= max(timeline.backward, default=0):
        position = timeline.forward.index(timeline.peak)
        op = problem.ops[timeline.order[position]]
        alive = {*op.inputs, *op.outputs, *timeline.saved}
    else:
        position = timeline.backward.index(timeline.peak)
        op = problem.ops[point.schedule[position]]
        alive = {c.value for c in copies(problem, point.schedule) if c.start <= position <= c.end}
    largest = sorted(alive, key=lambda v: (-problem.values[v].nbytes, v))[:5]
    named = (
        f"{problem.values[v].name} ({format_bytes(problem.values[v].nbytes)})" for v in largest
    )
    return op.name, ", ".join(named)
