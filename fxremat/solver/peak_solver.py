"""The peak solver: the least recompute time within a limit on the real peak.

Plans for all limits of a problem hang on one tree. Its root is the stretch between the floor and
the peak of the plan that recomputes nothing; a stretch is halved at a limit for which a plan is
searched (:mod:`fxremat.solver.search.lns`), starting from the plans at both ends. A limit is
answered by walking down to it. What a node finds depends on the nodes above it alone, never on the
limit that is asked for or on the order of questions, and it is only accepted in between: with a
peak not below that of the plan at the lower end and a time not below that of the plan at the upper
end. Hence for any two limits, asked together or apart, the smaller one has neither the higher peak
nor the lower time.

A stretch is not halved where nothing is left to gain: it is short, its ends cost the same, or the
lower bound at its upper end proves the plan at its lower end good enough.

Work is counted in rounds, never in seconds, and the random stream is seeded: one problem gives one
plan. A time limit only stops early.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fxremat.problem.types import Problem
from fxremat.solver.bounds.peak import floor
from fxremat.solver.bounds.time import TimeBound
from fxremat.solver.flat import FlatProblem
from fxremat.solver.mincut.cutter import Cutter
from fxremat.solver.pareto import Point, Pool
from fxremat.solver.schedule.state import State
from fxremat.solver.search.lns import Deadline, Search
from fxremat.solver.search.restore import restore
from fxremat.solver.seeds.cuts import baseline, cuts
from fxremat.solver.tuning import SEARCH

__all__ = ["PeakSolver"]


@dataclass(frozen=True)
class _Stretch:
    """Limits from ``bottom`` up to, but not including, the peak of ``high``.

    Attributes:
        bottom: bytes; ``low`` is the answer there.
        low: a plan within ``bottom``, or None if none was found there.
        high: the plan at the upper end.
        depth: how often the whole has been halved.
    """

    bottom: int
    low: Point | None
    high: Point
    depth: int = 0

    @property
    def middle(self) -> int:
        return (self.bottom + self.high.peak) // 2


class PeakSolver:
    """Finds plans of one problem for any number of limits.

    Args:
        problem: the problem.
        effort: rounds of the neighbourhood search, in multiples of the default; 0 leaves it out.
        time_limit: seconds after which no new attempt is begun, or None.

    Attributes:
        baseline: the plan that recomputes nothing but what may not be saved.
        pool: the plans found so far.
        floor: bytes below which no plan can go.

    Raises:
        InfeasibleError: if some value may be neither saved nor recomputed.
    """

    def __init__(
        self, problem: Problem, effort: float = 1.0, time_limit: float | None = None
    ) -> None:
        self.problem = problem
        self.flat = FlatProblem.of(problem)
        self.cutter = Cutter(problem)
        self.pool = Pool(problem)
        self.floor = floor(problem, self.flat)
        self.baseline = self._first()
        self.start = State(self.flat, self.baseline.schedule)
        self.bound = TimeBound(self.flat, self.start.at_backward())
        self.deadline = Deadline(math.inf if time_limit is None else time.monotonic() + time_limit)
        self._search = Search(self.flat, self.cutter, self.start, self.bound, effort, self.deadline)
        self._nodes: dict[int, Point | None] = {}
        self._whole = _Stretch(self.floor - 1, None, self._loosest())

    @property
    def timed_out(self) -> bool:
        """Whether the time limit has cut a search short."""
        return self.deadline.late

    @property
    def seconds_left(self) -> float:
        """Seconds up to the time limit."""
        return self.deadline.ends - time.monotonic()

    def solve(self, limit: int) -> Point | None:
        """The cheapest plan found whose peak is within a limit (bytes), or None."""
        if limit < self.floor:
            return None
        with _collector_off():
            if limit >= self._whole.high.peak:
                return self._whole.high
            found = self._walk(limit) or self._lowest()
        if self.deadline.late:
            return self._best_so_far(limit)
        return found if found is not None and found.peak <= limit else None

    def _best_so_far(self, limit: int) -> Point | None:
        """The best plan there is once time has run out; some plan, if one is quickly found."""
        if self.pool.best(limit) is None:
            with _collector_off():
                for state in self._search.hasty(limit):
                    self.pool.add(state.schedule())
        return self.pool.best(limit)

    def least(self) -> Point:
        """The plan with the lowest peak found."""
        with _collector_off():
            found = self._lowest()
        return self.pool.least if self.deadline.late else found

    def frontier(self) -> tuple[Point, ...]:
        """Plans from the lowest peak found to no recompute, by rising peak and falling time.

        Each is what :meth:`solve` answers at its own peak.
        """
        with _collector_off():
            points = {p.peak: p for p in (self._whole.high, self._lowest())}
            stack = [self._whole]
            while stack:
                stretch = stack.pop()
                if stretch.low is not None:
                    points[stretch.low.peak] = stretch.low
                if not self._closed(stretch, SEARCH.coarsest, SEARCH.apart):
                    below, above = self._halves(stretch)
                    stack += [above] if above.low is None else [below, above]
        return tuple(sorted(points.values(), key=lambda p: p.peak))

    def lower_bound(self, limit: int) -> float:
        """Seconds below which no plan within a limit on the peak (bytes) can recompute."""
        if limit >= self.start.peak and self.baseline.seconds == 0.0:
            return 0.0
        return self.bound.at(limit).seconds

    # The tree.

    def _loosest(self) -> Point:
        """The cheapest plan of all: the baseline, or it without runs that no limit calls for."""
        free = State(self.flat, self.start.ops)
        restore(free, 2**62)
        point = self.pool.add(free.schedule())
        return min(self.baseline, point, key=lambda p: (p.seconds, p.peak))

    def _walk(self, limit: int) -> Point | None:
        """The answer to a limit; None if no plan was found."""
        stretch = self._whole
        while not self._closed(stretch, SEARCH.finest, SEARCH.equal):
            below, above = self._halves(stretch)
            if limit >= above.bottom:
                stretch = above
            elif above.low is not None and limit >= above.low.peak:
                return above.low
            elif above.low is None:
                return None  # nothing was found at a higher limit
            else:
                stretch = below
        return stretch.low

    def _lowest(self) -> Point:
        """The plan at the lower end of the lowest stretch that has one."""
        stretch = self._whole
        while stretch.low is None and not self._closed(stretch, SEARCH.finest, SEARCH.equal):
            below, above = self._halves(stretch)
            stretch = above if above.low is None else below
        return stretch.high if stretch.low is None else stretch.low

    def _halves(self, stretch: _Stretch) -> tuple[_Stretch, _Stretch]:
        middle, depth = stretch.middle, stretch.depth + 1
        found = self._nodes[middle] if middle in self._nodes else self._node(stretch, middle)
        if not self.deadline.late:
            self._nodes[middle] = found
        high = stretch.high if found is None else found
        below = _Stretch(stretch.bottom, stretch.low, high, depth)
        return below, _Stretch(middle, found, stretch.high, depth)

    def _node(self, stretch: _Stretch, limit: int) -> Point | None:
        """The cheapest plan within a limit that lies between the ends of a stretch.

        One that is cheaper than the upper end is taken only where there is nothing else.
        """
        low, high = stretch.low, stretch.high
        outside: Point | None = None
        for state in self._search.run(limit, low, high, stretch.depth):
            if low is not None and state.cost > low.seconds:
                break
            point = Point.of(self.problem, state.schedule())
            if point.peak > limit:
                continue
            above = low is None or (low.peak <= point.peak and point.seconds <= low.seconds)
            if above and point.seconds >= high.seconds:
                self.pool.keep(point)
                return point
            outside = point
        if low is None and outside is not None:
            self.pool.keep(outside)
            return outside
        return low

    def _closed(self, stretch: _Stretch, parts: int, apart: float) -> bool:
        if self.deadline.passed():
            return True
        size = stretch.high.peak - stretch.bottom
        if size <= max(1, self.baseline.peak // parts):
            return True
        if stretch.low is None:
            return False
        step = self.problem.step_seconds
        if stretch.low.seconds <= stretch.high.seconds + apart * step:
            return True
        proved = self.bound.at(stretch.high.peak - 1).seconds
        return stretch.low.seconds <= proved + SEARCH.proved * step

    def _first(self) -> Point:
        """The baseline or, where rules forbid it, the first cut; the cut tells what conflicts."""
        try:
            return self.pool.add(baseline(self.problem))
        except ValueError:
            return self.pool.add(next(cuts(self.flat, self.cutter)))


@contextmanager
def _collector_off() -> Iterator[None]:
    """Without the cyclic garbage collector, which took a third of the time; restored in any case.

    States hold no cycles, so nothing is left for it; but each of its runs walks all live objects.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
