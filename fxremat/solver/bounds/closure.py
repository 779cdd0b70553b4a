"""What must still be computable at one moment of the backward: the ground of all lower bounds.

While the ``k``-th backward op runs, the values that are live must suffice, with recomputing, for
everything that later backward ops read. So they form a closure with the ops that run again after
``k``: a value that a later op reads is live or its op runs again, and an op that runs again finds
each of its inputs live or made again. That holds in every plan, however often and in whatever order
it recomputes, and it is the save-or-recompute choice of :mod:`fxremat.solver.mincut.network` for a
problem whose backward reads only what is read after ``k``. Hence minimum cuts of such problems
bound every plan from below, in bytes (:mod:`fxremat.solver.bounds.peak`) and in seconds
(:mod:`fxremat.solver.bounds.time`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fxremat.problem.types import Op, Phase, Problem
from fxremat.solver.flat import FlatProblem
from fxremat.solver.mincut.cutter import Cutter

__all__ = ["BOUNDARY", "Moment", "moment"]

BOUNDARY = -1


@dataclass(frozen=True)
class Moment:
    """One moment of the step.

    Attributes:
        base: bytes that are live in every plan at that moment.
        nbytes: for each value the bytes that it adds to ``base`` if it is live at that moment: 0 if
            ``base`` counts it already, or if it is returned by the forward.
        ops: the ops of the problem that the ops of the cutter's problem stand for.
        cutter: cuts the problem of what is needed later.
    """

    base: int
    nbytes: tuple[int, ...]
    ops: tuple[int, ...]
    cutter: Cutter


def moment(flat: FlatProblem, index: int) -> Moment:
    """The moment at which the backward op at a place runs, or BOUNDARY, at which the forward ends.

    At the boundary the moment is the last position of the forward: what is live later is what has
    been saved, and values that the forward's last op still reads are among the base.
    """
    problem, at = flat.problem, len(flat.forward) - 1
    if index == BOUNDARY:
        base = int(flat.forward[at]) if at >= 0 else 0
        own = [v for v, last in enumerate(flat.last) if last >= at]
        wanted = [v for op in problem.backward for v in flat.reads[op]]
    else:
        base = flat.base_at[index]
        own = list(flat.reads[problem.backward[index]])
        base += sum(flat.saving_bytes[v] for v in own)
        wanted = [v for op in problem.backward[index + 1 :] for v in flat.reads[op]]
    counted = list(flat.saving_bytes)
    for value in own:
        counted[value] = 0
    later, ops = _later(problem, wanted, index == BOUNDARY)
    return Moment(base, tuple(counted), ops, Cutter(later))


def _later(problem: Problem, wanted: list[int], boundary: bool) -> tuple[Problem, tuple[int, ...]]:
    """The problem of one op that reads all that is wanted, and the ops that its ops stand for.

    What may not be saved may still be live within the backward, made again before. A DEFERRABLE op
    runs in the backward once even if it may not run again.
    """
    kept = tuple(i for i, op in enumerate(problem.ops) if op.phase is not Phase.BACKWARD)
    place = {old: new for new, old in enumerate(kept)}
    ops = [problem.ops[i] for i in kept]
    ops = [replace(op, fixed="") if op.fixed and op.phase is Phase.DEFERRABLE else op for op in ops]
    values = problem.values
    if not boundary:
        values = tuple(
            replace(v, unsaveable="") if v.unsaveable and problem.producer[i] >= 0 else v
            for i, v in enumerate(values)
        )
    reader = Op("later", tuple(dict.fromkeys(wanted)), (), 0.0, phase=Phase.BACKWARD)
    forward = tuple(place[o] for o in problem.forward)
    return Problem(values, (*ops, reader), forward, (len(ops),)), kept
