"""One limit: from starts through drain and fill to a neighbourhood search.

1. *Starts.* The plans known on both sides of the limit; cuts at one price for all bytes
   (:mod:`fxremat.solver.seeds.cuts`); a cut at the price at which the lower bound is reached
   (:mod:`fxremat.solver.bounds.time`); cuts at prices over time (:mod:`fxremat.solver.seeds.mwu`).
   Where all these recompute much, schedules that recompute values several times
   (:mod:`fxremat.solver.seeds.rotor`).
2. Each start is *drained* to the limit (:mod:`fxremat.solver.search.evict`), *normalised*
   (:mod:`fxremat.solver.schedule.moves`) and *filled* (:mod:`fxremat.solver.search.restore`).
3. A *large neighbourhood search* (Shaw 1998) ruins a part of the best plan
   (:mod:`fxremat.solver.search.destroy`), drains and fills it again, with annealed acceptance and
   randomly perturbed rankings.
4. A *mixed-integer program* looks for the best plan of single recomputes where the problem is
   small (:mod:`fxremat.solver.exact.solve`).

All of it ends when the lower bound proves the best plan to be good enough.

Work is counted in rounds, never in seconds, and the random stream is seeded with the limit.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from fxremat.problem.types import Problem
from fxremat.solver.bounds.time import Dual, TimeBound
from fxremat.solver.exact.solve import polish
from fxremat.solver.flat import Table
from fxremat.solver.mincut.cutter import Cutter
from fxremat.solver.pareto import Point
from fxremat.solver.schedule.moves import legal, normalise, prune
from fxremat.solver.schedule.removal import Removal
from fxremat.solver.schedule.state import State
from fxremat.solver.search.destroy import Ruins
from fxremat.solver.search.evict import drain
from fxremat.solver.search.restore import Score, by_area, by_bytes, fill
from fxremat.solver.seeds.cuts import cut_at, cuts
from fxremat.solver.seeds.mwu import priced_cuts
from fxremat.solver.seeds.rotor import Rotor

__all__ = ["PROVED", "Clock", "Search"]

PROVED = 5e-4  # of the step's time: a plan this near to the lower bound is not improved further
WORK = 10_000  # ops in the schedules of all rounds of the neighbourhood search, at effort 1
ROUNDS = 120  # at most
LONG = 1000  # ops of a schedule above which starts are chosen more sparingly
NEAR = (0.85, 1.7)  # cuts whose peak is within these multiples of the limit are tried
HOMOTOPY = 0.85  # a limit further below the plan to start from is approached in such steps
CAREFUL = (0.05, 0.01)  # batches of evictions where nothing else comes within the limit
WORSE = 1.1  # drop a seed if, after restoring, it costs more than so many times the best
DEAR = 0.1  # of the step's time: above this, recomputing values several times may pay
AROUND = (1.0, 1.05, 0.95, 1.1)  # multiples of the limit for which such schedules are made
HEAVY = (4, 1000)  # runs of each forward op, and at least so many: such plans are not improved
COARSE = 3  # brackets so deep or deeper in the bisection have near plans on both sides


@dataclass
class Clock:
    """When to stop, and whether that has happened.

    Attributes:
        deadline: in seconds of ``time.monotonic``.
        late: whether it has passed at some check.
    """

    deadline: float = math.inf
    late: bool = False

    def check(self) -> bool:
        """Whether it is time to stop."""
        self.late = self.late or time.monotonic() > self.deadline
        return self.late


@dataclass
class _Found:
    """States within a limit, and the cheapest of them."""

    limit: int
    states: list[State] = field(default_factory=list)
    seen: set[tuple[int, ...]] = field(default_factory=set)

    def add(self, state: State) -> None:
        if state.peak <= self.limit:
            self.states.append(state)

    @property
    def best(self) -> State | None:
        return min(self.states, key=lambda s: s.cost, default=None)


class Search:
    """Finds plans for limits of one problem.

    Args:
        problem: the problem.
        table: its layout.
        cutter: cuts the problem.
        start: the plan that recomputes nothing.
        bound: lower bounds on the time.
        effort: rounds of the neighbourhood search, in multiples of the default; 0 leaves it out.
        clock: tells when to stop.
    """

    def __init__(
        self,
        problem: Problem,
        table: Table,
        cutter: Cutter,
        start: State,
        bound: TimeBound,
        effort: float,
        clock: Clock,
    ) -> None:
        self.problem, self.table, self.cutter = problem, table, cutter
        self.start, self.bound, self.effort, self.clock = start, bound, effort, clock
        self.ruins = Ruins(table)

    def run(self, limit: int, low: Point | None, high: Point, depth: int) -> list[State]:
        """States within a limit on the peak, cheapest first.

        Args:
            limit: bytes.
            low: a plan within the limit, if one is known.
            high: a plan above it.
            depth: how often the limits between which this one lies have been halved.
        """
        found = _Found(limit)
        dual = self.bound.at(limit)
        if dual.seconds == math.inf:
            return []
        enough = dual.seconds + PROVED * self.problem.step_seconds
        for start in self._starts(limit, low, high, depth, dual):
            if self.clock.check():
                break
            self._settle(start, found, enough)
            best = found.best
            if best is not None and (best.cost <= enough or self._heavy(best)):
                break
        self._repeat(found, enough)
        if found.best is None and len(high.schedule) <= 2 * LONG:
            for state in (State(self.table, high.schedule), self.start):
                for batch in CAREFUL if found.best is None else ():
                    self._settle(self._approach(state, limit, batch), found, enough)
        best = found.best
        if best is not None and best.cost > enough and not self._heavy(best):
            self._improve(best, found, enough)
        self._polish(found, enough)
        return sorted(found.states, key=lambda s: s.cost)

    def _heavy(self, state: State) -> bool:
        runs = sum(not self.table.is_backward[op] for op in state.ops)
        each, least = HEAVY
        return runs > max(least, each * len(self.problem.forward))

    def _polish(self, found: _Found, enough: float) -> None:
        """Let a mixed-integer program look for something better, where the problem is small."""
        best = found.best
        if self.effort <= 0 or self.clock.check() or (best is not None and best.cost <= enough):
            return
        point = polish(self.problem, found.limit, None if best is None else best.schedule())
        if point is not None:
            found.add(State(self.table, point.schedule))

    def _repeat(self, found: _Found, enough: float) -> None:
        """Try schedules that recompute values several times, as long as they are among the best."""
        for multiple in AROUND:
            best = found.best
            if best is not None and self._heavy(best):
                return
            if best is not None and best.cost <= max(enough, DEAR * self.problem.step_seconds):
                return
            schedule = self._rotor.schedule(int(multiple * found.limit))
            if schedule is None or self.clock.check():
                continue
            start = State(self.table, schedule)
            prune(start)
            start = State(self.table, start.schedule())
            if legal(start):
                cost = self._settle(drain(start, found.limit), found, enough)
                if best is not None and cost > WORSE * best.cost:
                    return

    # Starts, each drained to the limit or as far as that goes.

    def _starts(
        self, limit: int, low: Point | None, high: Point, depth: int, dual: Dual
    ) -> Iterator[State]:
        upper = State(self.table, high.schedule)
        if low is not None:
            yield State(self.table, low.schedule)
        large = len(upper.ops) > 2 * LONG
        yield self._approach(upper, limit, 0.5 if large else 0.2)
        if dual.moment is not None:
            yield drain(self._at_the_bound(dual), limit)
        coarse = depth < COARSE
        for state in self._promising(self._uniform, limit)[: 6 if coarse else 1]:
            yield drain(state, limit)
        if coarse and not large:
            yield self._approach(upper, limit, 0.05)
        if coarse and limit > 0:
            priced = priced_cuts(self.problem, self.table, self.cutter, self.start, limit)
            for state in self._promising(list(priced), limit)[:3]:
                yield drain(state, limit)

    def hasty(self, limit: int) -> Iterator[State]:
        """A few states near or within a limit, whatever the clock says."""
        dual = self.bound.at(limit)
        if dual.moment is not None and dual.seconds < math.inf:
            yield drain(self._at_the_bound(dual), limit, 0.5)
        yield drain(self.start, limit, 0.5)

    def _at_the_bound(self, dual: Dual) -> State:
        """The plan of a cut at the prices at which the lower bound is reached."""
        assert dual.moment is not None
        recompute = [0.0] * len(self.problem.ops)
        for op in dual.moment.ops:
            if op not in self.problem.required:
                recompute[op] = self.table.seconds[op]
        prices = [dual.price * nbytes for nbytes in dual.moment.nbytes]
        return State(self.table, cut_at(self.problem, self.table, self.cutter, recompute, prices))

    def _approach(self, state: State, limit: int, batch: float) -> State:
        """Drain in steps, so that each starts near its limit."""
        at = state.peak
        while state.peak > limit and at > limit:
            if self.clock.check() or (batch in CAREFUL and self._heavy(state)):
                break
            at = max(limit, int(at * HOMOTOPY))
            state = drain(state, at, batch)
            tidy = normalise(state)
            if tidy.peak <= max(at, state.peak):
                state = tidy
        return state

    @cached_property
    def _uniform(self) -> list[State]:
        """The plans of cuts at one price for all bytes."""
        return [State(self.table, s) for s in cuts(self.problem, self.table, self.cutter)]

    @cached_property
    def _rotor(self) -> Rotor:
        return Rotor(self.problem, self.table, self.start.peak)

    def _promising(self, states: list[State], limit: int) -> list[State]:
        """States near the limit, those first that are cheap for what they are above it."""
        near = [s for s in states if NEAR[0] * limit < s.peak < NEAR[1] * limit]
        step = self.problem.step_seconds
        return sorted(near, key=lambda s: max(0.0, s.peak / limit - 1) * step + s.cost)

    def _settle(self, state: State, found: _Found, enough: float) -> float:
        """Normalise and fill a drained state; the seconds that what comes of it recomputes."""
        tidy = normalise(state)
        if tidy.peak <= max(state.peak, found.limit):
            state = tidy
        if state.peak > found.limit:
            return math.inf
        key = tuple(state.schedule())
        if key in found.seen:
            return state.cost
        found.seen.add(key)
        found.add(state)
        cost = state.cost
        for score in (by_bytes, by_area):
            filled = State(self.table, key)
            fill(filled, found.limit, score)
            found.add(filled)
            cost = min(cost, filled.cost)
            best = found.best
            done = best is not None and (best.cost <= enough or filled.cost > WORSE * best.cost)
            if done or self._heavy(filled):
                break
        return cost

    # Annealed large neighbourhood search.

    def _improve(self, state: State, found: _Found, enough: float) -> None:
        limit = found.limit
        step = self.problem.step_seconds
        wanted = min(2.0, 0.5 + 20 * (state.cost - enough) / step)
        wanted /= max(1.0, 2 * state.cost / step)  # fewer rounds for expensive plans
        share = min(ROUNDS, WORK / len(state.ops) * wanted)
        rounds = round(self.effort * share)
        rng = random.Random(limit)
        best = current = state
        for index in range(rounds):
            if self.clock.check() or best.cost <= enough:
                return
            ruined = self.ruins.ruin(current, limit, rng)
            if ruined is None:
                continue
            tidy = normalise(ruined)
            fresh = tidy if tidy.peak <= limit else ruined
            if fresh.peak > limit:
                continue
            fill(fresh, limit, _noisy(rng))
            heat = 0.01 * best.cost * (1 - index / rounds) ** 2
            if fresh.cost < current.cost or rng.random() < math.exp(
                (current.cost - fresh.cost) / (heat + 1e-15)
            ):
                current = fresh
            if fresh.cost < best.cost:
                best = fresh
                found.add(fresh)


def _noisy(rng: random.Random) -> Score:
    base = rng.choice((by_bytes, by_area))

    def score(state: State, change: Removal) -> float:
        return base(state, change) * math.exp(rng.gauss(0.0, 0.3))

    return score
