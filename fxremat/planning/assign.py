"""Sharing one budget among the graphs of a step.

A model that breaks into several graphs runs their forwards one after the other and their backwards
in reverse. While one of them runs, what the earlier ones have returned and handed to their backward
is live too. So each graph gets two limits, on its own peak and on what it saves. The step keeps its
budget if for every call what the earlier calls hold and the peak of its graph are within it.

How much the graphs may save is one number between the least that each can save and what each saves
when nothing is recomputed; the largest that keeps the budget is found by halving.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fxremat.plans.plan import Plan
from fxremat.problem.context import Context
from fxremat.problem.types import Problem
from fxremat.solver.mincut.holding import hold_at_most, saved_bytes
from fxremat.solver.peak_solver import PeakSolver
from fxremat.solver.seeds.cuts import baseline

__all__ = ["ALONE", "Call", "Room", "Share", "assign", "hold", "most_saved"]

HALVINGS = 6
WHY = "other graphs of the step need the room"


@dataclass(frozen=True)
class Call:
    """One forward within a step.

    Attributes:
        graph: which graph it is of.
        returned: bytes that it leaves live besides what its backward has saved.
    """

    graph: int
    returned: int


@dataclass(frozen=True)
class Share:
    """What one graph may take.

    Attributes:
        peak: limit on its own peak, in bytes.
        saved: limit on what it saves for its backward, in bytes; None where it does not matter.
    """

    peak: int
    saved: int | None

    def suits(self, plan: Plan) -> bool:
        """Whether a plan keeps the limits, and recomputes nothing that it need not."""
        fits = self.saved is None or plan.saved_bytes <= self.saved
        return fits and plan.predicted_peak <= self.peak and not plan.recomputed


def most_saved(context: Context) -> int:
    """Bytes that a graph saves for its backward when nothing is recomputed."""
    problem = context.problem
    return saved_bytes(problem, baseline(problem), range(len(problem.values)))


def hold(context: Context, saved: int) -> Context:
    """The context of a graph that may save so many bytes at most."""
    return replace(context, problem=_held(context, saved)[0])


def _held(context: Context, saved: int) -> tuple[Problem, int]:
    problem = context.problem
    return hold_at_most(problem, range(len(problem.values)), saved, WHY)


@dataclass(frozen=True)
class Room:
    """What the other graphs of a step leave to one of them.

    Attributes:
        reserved: bytes that they hold meanwhile, part of a budget in bytes.
        saved: bytes that this one may save for its backward, or None.
        shared: they have a part in the budget; where this one cannot keep what is left of it, the
            closest plan is taken, and the parts are settled later.
    """

    reserved: int = 0
    saved: int | None = None
    shared: bool = False


ALONE = Room()


class _Graph:
    """One graph, at several limits on what it saves."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.most = most_saved(context)
        _, self.least = _held(context, 0)
        self._solvers: dict[int | None, PeakSolver] = {}

    def solver(self, saved: int | None) -> PeakSolver:
        """The solver of the plans that save so much at most."""
        if saved not in self._solvers:
            narrowed = self.context if saved is None else hold(self.context, saved)
            self._solvers[saved] = PeakSolver(narrowed.priced, 0.0)
        return self._solvers[saved]


def assign(
    calls: Sequence[Call], contexts: Sequence[Context], budget: int
) -> tuple[list[Share] | None, int]:
    """Limits of each graph with which a step keeps its budget.

    Args:
        calls: the forwards of a step, in order; the backwards run in reverse.
        contexts: of each graph.
        budget: bytes that the step may hold.

    Returns:
        The limits of each graph, or None if nothing was found; and the bytes that the step needs
        when each graph saves as little as it can.
    """
    graphs = [_Graph(c) for c in contexts]

    def shares(room: float) -> list[Share]:
        saved = [round(g.least + room * (g.most - g.least)) for g in graphs]
        limits = [budget] * len(graphs)
        before = 0
        for call in calls:
            limits[call.graph] = min(limits[call.graph], budget - before)
            before += call.returned + saved[call.graph]
        followed = {call.graph for call in calls[:-1]}
        pairs = enumerate(zip(limits, saved, strict=True))
        return [Share(peak, most if g in followed else None) for g, (peak, most) in pairs]

    def fits(found: list[Share]) -> bool:
        return all(
            g.solver(share.saved).solve(share.peak) is not None
            for g, share in zip(graphs, found, strict=True)
        )

    tightest = shares(0.0)
    if not fits(tightest):
        return None, max(
            budget - share.peak + g.solver(share.saved).least().peak
            for g, share in zip(graphs, tightest, strict=True)
        )
    best, low, high = tightest, 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        found = shares(middle)
        if fits(found):
            best, low = found, middle
        else:
            high = middle
    return best, budget
