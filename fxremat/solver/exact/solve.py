"""Exact solvers for small problems: mixed-integer programs that prove a plan to be the cheapest.

A proof speaks about a class of schedules. To both classes applies:

* All runs of a stage stand right before its backward op (:mod:`fxremat.solver.exact.stages`), each
  op at most once, in the order in which a depth-first search through the inputs would finish them.
* A run is made for its stage: some op of the stage reads a result of it that is not there anyway.
  A result that is wanted later only is not made early, even if its inputs then live shorter.
* Whatever the rules allow may be saved, DEFERRABLE values too: their ops are then hoisted into the
  forward, with the DEFERRABLE ops that they need, and keep their inputs live up to there.

The classes differ in the rest:

* :func:`solve_single`: every op runs in one stage at most. An op that runs saves none of its
  outputs but those that cost nothing to save. (One that is hoisted for another may run as well.)
* :func:`solve_several`: an op may run in any number of stages, whatever of it is saved.

Rows for the bytes live while a backward op runs are in the program from the start, and those for
the forward as far as they do not follow from one another. Rows for the runs of a stage, of which
there is one for every op and stage, are added where the replay of a solution exceeds the limit;
until then the program leaves constraints out, so its bounds hold. The first rounds stop at a gap
of a few percent, as rows go missing at rough solutions too.

What helped on small chains, transformers, residual and U-shaped networks: stages instead of
backward ops, variables for the stages alone in which a need can arise, live values as continuous
variables, and a good plan to begin with.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from fxremat.problem.types import Phase, Problem
from fxremat.solver.exact.rows import Rows
from fxremat.solver.exact.several import Several
from fxremat.solver.exact.single import Single
from fxremat.solver.exact.stages import Stages
from fxremat.solver.pareto import Point
from fxremat.solver.tuning import EXACT

__all__ = ["Exact", "polish", "solve_several", "solve_single"]


@dataclass(frozen=True, slots=True)
class Exact:
    """What is known about one problem and limit.

    Attributes:
        point: the cheapest plan found within the limit, or None.
        bound: no plan of the class within the limit recomputes for less than this many seconds;
            infinite if there is none.
        proved: whether no plan of the class is cheaper than ``point``, by more than a millionth of
            a step, or whether there is none.
    """

    point: Point | None
    bound: float
    proved: bool


def solve_single(
    problem: Problem,
    limit: int,
    *,
    time_limit: float | None = None,
    start: Sequence[int] | None = None,
) -> Exact:
    """The cheapest plan in which no op runs in two stages of the backward.

    Args:
        problem: the problem.
        limit: most bytes that may be live at one moment.
        time_limit: seconds after which to stop, or None. The solver looks at the clock seldom.
        start: a schedule within the limit, of this class or not. Only cheaper ones are looked for,
            and it is the answer if there is none.

    Raises:
        ValueError: if ``start`` exceeds the limit or is no schedule of the problem.
    """
    return _Search(problem, limit, Single, start).solve(time_limit)


def solve_several(
    problem: Problem,
    limit: int,
    *,
    time_limit: float | None = None,
    start: Sequence[int] | None = None,
) -> Exact:
    """The cheapest plan in which ops run in any number of stages; see :func:`solve_single`.

    The smaller class goes first, within a share of the time limit, to have a good plan to begin
    with: this program is by far the slower one.
    """
    begin = time.monotonic()
    single = _Search(problem, limit, Single, start).solve(
        None if time_limit is None else time_limit * EXACT.single_share
    )
    known = single.point.schedule if single.point else start
    left = None if time_limit is None else time_limit - (time.monotonic() - begin)
    return _Search(problem, limit, Several, known).solve(left)


def polish(problem: Problem, limit: int, start: Sequence[int] | None) -> Point | None:
    """What a short search for the cheapest plan of single runs finds: the same on every machine.

    Args:
        problem: the problem.
        limit: most bytes that may be live at one moment.
        start: a schedule within the limit to begin with, or None.

    Returns:
        The best plan, or None if there is none or the problem is too large for a short search.
    """
    if sum(op.phase is not Phase.BACKWARD and not op.fixed for op in problem.ops) > EXACT.max_ops:
        return None
    # The MILP underestimates values that can be neither saved nor dropped.
    if start is not None and Point.of(problem, start).peak > limit:
        start = None
    search = _Search(problem, limit, Single, start)
    if sum(search.form.model.whole) > EXACT.max_binaries:
        return None
    return search.solve(None, EXACT.nodes, EXACT.rounds).point


class _Search:
    """Rounds of one program, each with the rows that the last solution broke."""

    def __init__(
        self,
        problem: Problem,
        limit: int,
        program: type[Single] | type[Several],
        start: Sequence[int] | None,
    ) -> None:
        self.problem, self.limit = problem, limit
        self.unit = EXACT.unit * problem.step_seconds or 1.0
        self.best: Point | None = None
        self.bound = 0.0
        if start is not None and not self._take(start):
            raise ValueError(f"the start exceeds the limit of {limit} bytes; give one within it")
        self.form = program(Stages(problem), 1 / self.unit)
        self.rows = Rows(self.form, limit)

    def solve(
        self, time_limit: float | None, nodes: int | None = None, rounds: int | None = None
    ) -> Exact:
        deadline = math.inf if time_limit is None else time.monotonic() + time_limit
        gap = EXACT.rough_gap
        for _ in count() if rounds is None else range(rounds):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            cutoff = (
                math.inf if self.best is None else self.best.seconds / self.unit - EXACT.improvement
            )
            solved = self.form.model.solve(left, gap, cutoff, nodes)
            self.bound = max(self.bound, solved.bound * self.unit)
            fits = solved.x is None
            if solved.x is not None:
                schedule = self.form.schedule(solved.x)
                fits = self._take(schedule)
                if not fits:
                    self.rows.missed(schedule, solved.x)
            if fits and (solved.closed or gap == 0.0):
                break
            gap = 0.0 if fits else gap
        return self._result()

    def _take(self, schedule: Sequence[int]) -> bool:
        """Keep a schedule if it is the best so far; say whether it is within the limit."""
        point = Point.of(self.problem, schedule)
        if point.peak > self.limit:
            return False
        if self.best is None or point.seconds < self.best.seconds:
            self.best = point
        return True

    def _result(self) -> Exact:
        if self.best is None:
            return Exact(None, self.bound, self.bound == math.inf)
        bound = min(self.bound, self.best.seconds)
        gap = self.best.seconds - bound
        return Exact(self.best, bound, gap <= EXACT.proved * self.problem.step_seconds)
