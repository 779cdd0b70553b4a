"""A lower bound on the peak of every plan of a problem.

Two bounds are taken, and the larger one counts. *One op*: while it runs, its inputs, outputs and
workspace are live, and so are all values of the backward that are still to be read. *One moment*
(:mod:`fxremat.solver.bounds.closure`): where ops may not run again, what they have made must be
kept, or what can be made from it; the fewest bytes that do are a minimum cut at prices of bytes
alone.
"""

from __future__ import annotations

from fxremat.problem.types import Kind, Phase, Problem
from fxremat.solver.bounds.closure import BOUNDARY, moment
from fxremat.solver.flat import FlatProblem
from fxremat.solver.mincut.network import Prices

__all__ = ["floor"]

MOMENTS = 12  # at which the fewest bytes are looked for, besides the end of the forward


def floor(problem: Problem, flat: FlatProblem | None = None) -> int:
    """A peak in bytes below which no plan can go.

    Raises:
        InfeasibleError: if some value may be neither saved nor recomputed, so there is no plan.
    """
    flat = flat or FlatProblem.of(problem)
    local = flat.op_floor
    most = max(max(local, default=0), _forward(problem))
    if not any(op.fixed and op.phase is Phase.FORWARD for op in problem.ops):
        return most
    count = len(local)
    even = {count * i // MOMENTS for i in range(MOMENTS)} if count else set()
    dear = sorted(range(count), key=lambda k: -local[k])[:MOMENTS]
    return max(most, *(_moment(flat, k) for k in (BOUNDARY, *sorted({*even, *dear}))))


def _moment(flat: FlatProblem, index: int) -> int:
    """The fewest bytes that are live at one moment."""
    at = moment(flat, index)
    unit = 1.0 / (sum(at.nbytes) + 1)
    prices = Prices((0.0,) * (len(at.ops) + 1), tuple(unit * nbytes for nbytes in at.nbytes))
    cut = at.cutter.cut(prices)
    return at.base + sum(at.nbytes[v] for v in cut.saved)


def _forward(problem: Problem) -> int:
    most = held = 0
    for index in problem.forward:
        op = problem.ops[index]
        if op.phase is not Phase.FORWARD:
            continue
        touched = [
            problem.values[v]
            for v in (*op.inputs, *op.outputs)
            if problem.values[v].kind is Kind.COMPUTED
        ]
        now = sum(v.nbytes for v in touched if not v.is_output) + op.workspace
        held += sum(problem.values[v].nbytes for v in op.outputs if problem.values[v].is_output)
        most = max(most, held + now)
    return most
