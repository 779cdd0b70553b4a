"""Plans of one graph: what a solver finds, with its prediction and its bounds.

A planner needs neither the model nor its graph, so plans can be made anew from a plan's file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from fxremat.base.errors import OptionError
from fxremat.frontend.analyze import Prepared, fingerprint
from fxremat.planning.strategies import COMPARED, strategy
from fxremat.plans.frontier import Frontier
from fxremat.plans.parts import SavedValue
from fxremat.plans.plan import Plan
from fxremat.problem.context import Context
from fxremat.problem.fused_values import recompute_fused_values
from fxremat.problem.replay import replay
from fxremat.problem.types import Phase, Problem
from fxremat.solver.pareto import Point
from fxremat.solver.peak_solver import PeakSolver

__all__ = ["Planner", "planner_of", "reader_of"]


class Planner:
    """Makes plans of one graph.

    Args:
        context: the problem and where it comes from.
        graph: fingerprint of the joint graph.
        effort: rounds of search, see :class:`fxremat.options.Options`.
        time_limit: seconds for all searches together, or None.
    """

    def __init__(
        self, context: Context, graph: str, effort: float = 1.0, time_limit: float | None = None
    ) -> None:
        self.context = context
        self.graph = graph
        self._effort = effort
        self._time_limit = time_limit

    @classmethod
    def of(cls, plan: Plan) -> Planner:
        """The planner of a plan's graph."""
        return cls(plan.context, plan.graph)

    @cached_property
    def solver(self) -> PeakSolver:
        """The solver, which sees what the user prefers in the times of ops."""
        return PeakSolver(self.context.priced, self._effort, self._time_limit)

    @cached_property
    def bounds(self) -> PeakSolver:
        """The solver that bounds are taken from: real seconds, whatever the user prefers."""
        return PeakSolver(self.context.problem) if self.context.weights else self.solver

    def plan(self, point: Point, limit: int | None, *, complete: bool | None = None) -> Plan:
        """The plan of a schedule.

        Args:
            point: the schedule; its seconds are not read.
            limit: bytes that the plan was made for, or None.
            complete: no time limit stopped the search; the solver knows by default.
        """
        problem = self.context.problem
        schedule = recompute_fused_values(problem, point.schedule)
        timeline = replay(problem, schedule)
        names = [op.name for op in problem.ops]
        return Plan(
            graph=self.graph,
            budget=limit,
            predicted_peak=timeline.peak,
            baseline_peak=self.bounds.baseline.peak,
            floor=self.bounds.floor,
            recompute_seconds=timeline.recompute_seconds,
            lower_bound_seconds=self.bounds.lower_bound(max(limit or timeline.peak, timeline.peak)),
            step_seconds=problem.step_seconds,
            recompute_flops=timeline.recompute_flops,
            saved=tuple(
                SavedValue(problem.values[v].name, problem.values[v].nbytes) for v in timeline.saved
            ),
            forward=tuple(names[o] for o in timeline.order),
            backward_schedule=tuple(names[o] for o in schedule),
            recomputed=tuple(names[o] for o in _again(problem, schedule, timeline.hoisted)),
            complete=not self.solver.timed_out if complete is None else complete,
            context=self.context,
        )

    def frontier(self) -> Frontier:
        """Plans by falling peak and rising time, and beside them what people do by hand."""
        points = sorted(self.solver.frontier(), key=lambda p: -p.peak)
        plans = tuple(self.plan(p, p.peak) for p in points)
        return Frontier(plans, self._strategies())

    def _strategies(self) -> dict[str, Plan]:
        found: dict[str, Plan] = {}
        for label, (name, k) in COMPARED.items():
            try:
                found[label] = self.plan(strategy(self.context, name, k), None)
            except OptionError:  # no blocks
                continue
        return found


def planner_of(ready: Prepared) -> Planner:
    """What makes plans of a prepared graph."""
    return _planner(ready, ready.context)


def reader_of(ready: Prepared) -> Planner:
    """What reads plans made elsewhere of a prepared graph, whatever was fused or left out there."""
    return _planner(ready, replace(ready.context, problem=ready.unfused()))


def _planner(ready: Prepared, context: Context) -> Planner:
    options = ready.options
    return Planner(context, fingerprint(ready.joint), options.effort, options.time_limit)


def _again(problem: Problem, schedule: Sequence[int], hoisted: Sequence[int]) -> list[int]:
    """The ops of a schedule that have run before, once for each further run."""
    first: set[int] = set(hoisted)
    found: list[int] = []
    for op in schedule:
        if problem.ops[op].phase is Phase.FORWARD or op in first:
            found.append(op)
        first.add(op)
    return found
