"""The peak solver: the least recompute time within a limit on the real peak.

1. *Starts.* The baseline, drained along a falling sequence of limits (a homotopy); cuts at one
   price for all bytes, over a sweep (:mod:`.starts`); cuts at prices over time (:mod:`.priced`);
   the plans of the pool just above the limit.
2. Each start is *drained* to the limit, *normalised* and *filled* (:mod:`.moves`).
3. A *large neighbourhood search* (Shaw 1998) ruins a part of the best plan and drains and fills it
   again, with annealed acceptance and randomly perturbed rankings.
4. All plans go to a *pool* shared by all limits of one problem.

Work is counted in rounds, never in seconds, and the random stream is seeded: one problem gives one
plan. A time limit only stops early.
"""

from __future__ import annotations

import gc
import math
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

from fxremat.floor import floor
from fxremat.mincut import Cutter
from fxremat.problem import Problem
from fxremat.solvers.moves import Score, by_area, by_bytes, drain, fill, normalise, rebuild
from fxremat.solvers.pool import Point, Pool
from fxremat.solvers.priced import priced_cuts
from fxremat.solvers.starts import baseline, cuts
from fxremat.solvers.state import SAVED, Removal, State
from fxremat.solvers.table import Table

__all__ = ["PeakSolver"]

HOMOTOPY = (1.6, 1.35, 1.2, 1.1, 1.05, 1.02, 1.0)
ROUNDS = 30  # of the neighbourhood search at effort 1
LONG = 1000  # runs of a schedule above which a round costs more, and fewer are made
NEAR = (0.85, 1.7)  # cuts whose peak is within these multiples of the limit are tried
MOST_CUTS = 8
MOST_PRICED = 3


class PeakSolver:
    """Finds plans of one problem for any number of limits.

    Args:
        problem: the problem.
        effort: rounds of the neighbourhood search, in multiples of the default; 0 leaves it out.
        time_limit: seconds after which no new attempt is begun, or None.

    Raises:
        InfeasibleError: if some value may be neither saved nor recomputed.
    """

    def __init__(
        self, problem: Problem, effort: float = 1.0, time_limit: float | None = None
    ) -> None:
        self.problem = problem
        self.effort = effort
        self.table = Table.of(problem)
        self.cutter = Cutter(problem)
        self.pool = Pool(problem)
        self.deadline = math.inf if time_limit is None else time.monotonic() + time_limit
        self.timed_out = False
        self.baseline = self._first()
        self.start = State(self.table, self.baseline.schedule)
        self._cuts: list[State] | None = None

    def solve(self, limit: int) -> Point | None:
        """The cheapest plan found whose peak is within a limit (bytes), or None."""
        with _collector_off():
            return self._solve(limit)

    def _solve(self, limit: int) -> Point | None:
        free = State(self.table, self.start.ops)
        fill(free, max(limit, 0))
        self._keep(free)
        if free.cost <= 0 and free.peak <= limit:
            return self.pool.best(limit)
        for start in (*self._starts(limit), *self._priced(limit)):
            if self._late():
                break
            self._settle(drain(start, limit), limit)
        self._homotopy(limit, 0.2, between=False)
        self._homotopy(limit, 0.05, between=True)
        best = self.pool.best(limit)
        if best is not None and best.seconds > 0:
            self._search(State(self.table, best.schedule), limit)
        return self.pool.best(limit)

    def least(self) -> Point:
        """The lowest peak found, at the least time found for it."""
        self._starts(self.pool.least.peak)
        bound = floor(self.problem, self.table)
        states = [State(self.table, self.pool.least.schedule), State(self.table, self.start.ops)]
        with _collector_off():
            for step in (0.8, 0.9, 0.97, 0.99, 0.997):
                states = [self._lower(state, step, bound) for state in states]
            least = self.pool.least
            settled = self._settle(State(self.table, least.schedule), least.peak)
            if settled is not None:
                self._search(settled, least.peak)
        found = self.pool.best(least.peak)
        assert found is not None  # the plan that reached it is in the pool
        return found

    def _lower(self, state: State, step: float, bound: int) -> State:
        """Lower the peak of a state by a factor again and again, as long as that works."""
        while state.peak > bound and not self._late():
            limit = max(int(state.peak * step), bound)
            for batch in (0.2, 0.02):
                drained = drain(state, limit, batch)
                tidy = normalise(drained)
                drained = min(drained, tidy, key=lambda s: s.peak)
                if drained.peak < state.peak:
                    self._keep(drained)
                if drained.peak <= limit:
                    break
            if drained.peak > limit:
                return min(state, drained, key=lambda s: s.peak)
            state = drained
        return state

    def _first(self) -> Point:
        """The baseline or, where rules forbid it, the first cut; the cut tells what conflicts."""
        try:
            return self.pool.add(baseline(self.problem))
        except ValueError:
            return self.pool.add(next(cuts(self.problem, self.table, self.cutter)))

    def _late(self) -> bool:
        self.timed_out = self.timed_out or time.monotonic() > self.deadline
        return self.timed_out

    def _keep(self, state: State) -> None:
        self.pool.add(state.schedule())

    def _starts(self, limit: int) -> list[State]:
        if self._cuts is None:
            self._cuts = [State(self.table, s) for s in cuts(self.problem, self.table, self.cutter)]
            for state in self._cuts:
                self._keep(state)
        pooled = [State(self.table, p.schedule) for p in self.pool.above(limit, 2)]
        return pooled + self._promising(self._cuts, limit)[:MOST_CUTS]

    def _priced(self, limit: int) -> list[State]:
        """The most promising plans of cuts at prices over time."""
        if limit <= 0:
            return []
        found = list(priced_cuts(self.problem, self.table, self.cutter, self.start, limit))
        for state in found:
            self._keep(state)
        return self._promising(found, limit)[:MOST_PRICED]

    def _promising(self, states: list[State], limit: int) -> list[State]:
        """States near the limit, those first that are cheap for what they are above it."""
        near = [s for s in states if NEAR[0] * limit < s.peak < NEAR[1] * limit]
        step = self.problem.step_seconds
        return sorted(near, key=lambda s: max(0.0, s.peak / limit - 1) * step + s.cost)

    def _settle(self, state: State, limit: int) -> State | None:
        """Normalise and fill a drained state, and keep it; None if it is above the limit."""
        tidy = normalise(state)
        if tidy.peak <= max(state.peak, limit):
            state = tidy
        if state.peak > limit:
            self._keep(state)
            return None
        best = state
        for score in (by_bytes, by_area):
            filled = State(self.table, state.schedule())
            fill(filled, limit, score)
            self._keep(filled)
            best = min(best, filled, key=lambda s: s.cost)
        return State(self.table, best.schedule())

    def _homotopy(self, limit: int, batch: float, between: bool) -> None:
        state = State(self.table, self.start.ops)
        for factor in HOMOTOPY:
            at = int(limit * factor)
            if at >= self.baseline.peak:
                continue
            if self._late():
                return
            state = drain(state, at, batch)
            if state.peak > at:
                self._keep(state)
                return
            if between or factor == 1.0:
                state = self._settle(state, at) or state
            else:
                tidy = normalise(state)
                state = tidy if tidy.peak <= at else state

    def _search(self, state: State, limit: int) -> None:
        """Annealed large neighbourhood search from a state within the limit."""
        rounds = round(ROUNDS * self.effort * min(1.0, LONG / max(len(state.ops), 1)))
        rng = random.Random(0)
        best = current = state
        for index in range(rounds):
            if self._late():
                return
            ruined = self._ruin(current, limit, rng)
            if ruined is None:
                continue
            tidy = normalise(ruined)
            found = tidy if tidy.peak <= limit else ruined
            if found.peak > limit:
                continue
            fill(found, limit, _noisy(rng))
            found = State(self.table, found.schedule())
            self._keep(found)
            heat = 0.01 * best.cost * (1 - index / rounds) ** 2
            if found.cost < current.cost or rng.random() < math.exp(
                (current.cost - found.cost) / (heat + 1e-15)
            ):
                current = found
            if found.cost < best.cost:
                best = found

    def _ruin(self, state: State, limit: int, rng: random.Random) -> State | None:
        draw = rng.random()
        if draw < 0.5:
            return drain(self._forced(state, rng), limit)
        if draw < 0.75:
            return drain(state, int(limit * rng.uniform(0.85, 0.99)))
        values = self._stretch(state, rng)
        fresh = rebuild(state, values, limit) if values else None
        return None if fresh is None else drain(fresh, limit)

    def _forced(self, state: State, rng: random.Random) -> State:
        """Drop a few neighbouring runs though they do not fit."""
        work = State(self.table, state.schedule())
        runs = [q for q, op in enumerate(work.ops) if not self.table.is_backward[op]]
        if not runs:
            return work
        centre = rng.choice(runs)
        near = sorted(runs, key=lambda q: abs(q - centre))[:12]
        for q in rng.sample(near, min(rng.randint(1, 4), len(near))):
            change = work.removal(q) if work.ops[q] >= 0 else None
            if change is not None:
                work.commit(change)
        return State(self.table, work.schedule())

    def _stretch(self, state: State, rng: random.Random) -> list[int]:
        """A few neighbouring saved values, in the order of the forward."""
        table = self.table
        saved = [
            v
            for v, chain in state.chains.items()
            if chain[0].start == SAVED and table.saving[v] and table.rerun[table.producer[v]]
        ]
        saved.sort(key=lambda v: (table.last[v], v))
        if not saved:
            return []
        at = rng.randrange(len(saved))
        return saved[at : at + rng.randint(1, 5)]


@contextmanager
def _collector_off() -> Iterator[None]:
    """Without the cyclic garbage collector, which took half of the time.

    States hold no cycles, so nothing is left for it; but each of its runs walks all live objects.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _noisy(rng: random.Random) -> Score:
    base = rng.choice((by_bytes, by_area))

    def score(state: State, change: Removal) -> float:
        return base(state, change) * math.exp(rng.gauss(0.0, 0.3))

    return score
