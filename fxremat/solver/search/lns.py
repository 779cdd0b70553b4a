"""One limit: from seeds through evict and restore to a neighbourhood search.

1. *Seeds.* The plans known on both sides of the limit; cuts at one price for all bytes
   (:mod:`fxremat.solver.seeds.cuts`); a cut at the price at which the lower bound is reached
   (:mod:`fxremat.solver.bounds.time`); cuts at prices over time (:mod:`fxremat.solver.seeds.mwu`).
   Where all these recompute much, schedules that recompute values several times
   (:mod:`fxremat.solver.seeds.rotor`).
2. Of each seed copies are *evicted* until it is within the limit
   (:mod:`fxremat.solver.search.evict`), runs are *normalised*
   (:mod:`fxremat.solver.schedule.moves`), and what fits is *restored*
   (:mod:`fxremat.solver.search.restore`).
3. A *large neighbourhood search* (Shaw 1998) destroys a part of the best plan
   (:mod:`fxremat.solver.search.destroy`), evicts and restores again, with annealed
   acceptance and randomly perturbed rankings.
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
from fxremat.solver.flat import FlatProblem
from fxremat.solver.mincut.cutter import Cutter
from fxremat.solver.pareto import Point
from fxremat.solver.schedule.moves import legal, normalise, prune
from fxremat.solver.schedule.removal import Removal
from fxremat.solver.schedule.state import State
from fxremat.solver.search.destroy import Destroyer
from fxremat.solver.search.evict import evict
from fxremat.solver.search.restore import Score, by_area, by_bytes, restore
from fxremat.solver.seeds.cuts import cut_at, cuts
from fxremat.solver.seeds.mwu import priced_cuts
from fxremat.solver.seeds.rotor import Rotor
from fxremat.solver.tuning import SEARCH

__all__ = ["Deadline", "Search"]


@dataclass
class Deadline:
    """When to stop, and whether that has happened.

    Attributes:
        ends: in seconds of ``time.monotonic``.
        late: whether it has passed at some check.
    """

    ends: float = math.inf
    late: bool = False

    def passed(self) -> bool:
        """Whether it is time to stop."""
        self.late = self.late or time.monotonic() > self.ends
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


@dataclass(eq=False)
class Search:
    """Finds plans for limits of one problem.

    Attributes:
        flat: the problem laid out.
        cutter: cuts the problem.
        start: the plan that recomputes nothing.
        bound: lower bounds on the time.
        effort: rounds of the neighbourhood search, in multiples of the default; 0 leaves it out.
        deadline: tells when to stop.
    """

    flat: FlatProblem
    cutter: Cutter
    start: State
    bound: TimeBound
    effort: float
    deadline: Deadline

    @cached_property
    def problem(self) -> Problem:
        """The problem."""
        return self.flat.problem

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
        enough = dual.seconds + SEARCH.proved * self.problem.step_seconds
        for start in self._seeds(limit, low, high, depth, dual):
            if self.deadline.passed():
                break
            self._settle(start, found, enough)
            best = found.best
            if best is not None and (best.cost <= enough or self._heavy(best)):
                break
        self._repeat(found, enough)
        if found.best is None and len(high.schedule) <= 2 * SEARCH.long_schedule:
            for state in (State(self.flat, high.schedule), self.start):
                for batch in SEARCH.careful_batches if found.best is None else ():
                    self._settle(self._approach(state, limit, batch), found, enough)
        best = found.best
        if best is not None and best.cost > enough and not self._heavy(best):
            self._improve(best, found, enough)
        self._polish(found, enough)
        return sorted(found.states, key=lambda s: s.cost)

    def _heavy(self, state: State) -> bool:
        runs = sum(not self.flat.is_backward[op] for op in state.ops)
        return runs > max(SEARCH.many_runs, SEARCH.many_runs_per_op * len(self.problem.forward))

    def _polish(self, found: _Found, enough: float) -> None:
        """Let a mixed-integer program look for something better, where the problem is small."""
        best = found.best
        if self.effort <= 0 or self.deadline.passed() or (best is not None and best.cost <= enough):
            return
        point = polish(self.problem, found.limit, None if best is None else best.schedule())
        if point is not None:
            found.add(State(self.flat, point.schedule))

    def _repeat(self, found: _Found, enough: float) -> None:
        """Try schedules that recompute values several times, as long as they are among the best."""
        for multiple in SEARCH.repeat_limits:
            best = found.best
            if best is not None and self._heavy(best):
                return
            if best is not None and best.cost <= max(
                enough, SEARCH.repeats_pay * self.problem.step_seconds
            ):
                return
            schedule = self._rotor.schedule(int(multiple * found.limit))
            if schedule is None or self.deadline.passed():
                continue
            start = State(self.flat, schedule)
            prune(start)
            start = State(self.flat, start.schedule())
            if legal(start):
                cost = self._settle(evict(start, found.limit), found, enough)
                if best is not None and cost > SEARCH.too_costly * best.cost:
                    return

    # Seeds, with copies evicted until they are within the limit or as far as that goes.

    def _seeds(
        self, limit: int, low: Point | None, high: Point, depth: int, dual: Dual
    ) -> Iterator[State]:
        upper = State(self.flat, high.schedule)
        if low is not None:
            yield State(self.flat, low.schedule)
        large = len(upper.ops) > 2 * SEARCH.long_schedule
        yield self._approach(upper, limit, 0.5 if large else 0.2)
        if dual.moment is not None:
            yield evict(self._at_the_bound(dual), limit)
        coarse = depth < SEARCH.coarse_depth
        for state in self._promising(self._uniform, limit)[: 6 if coarse else 1]:
            yield evict(state, limit)
        if coarse and not large:
            yield self._approach(upper, limit, 0.05)
        if coarse and limit > 0:
            priced = priced_cuts(self.flat, self.cutter, self.start, limit)
            for state in self._promising(list(priced), limit)[:3]:
                yield evict(state, limit)

    def hasty(self, limit: int) -> Iterator[State]:
        """A few states near or within a limit, even past the deadline."""
        dual = self.bound.at(limit)
        if dual.moment is not None and dual.seconds < math.inf:
            yield evict(self._at_the_bound(dual), limit, 0.5)
        yield evict(self.start, limit, 0.5)

    def _at_the_bound(self, dual: Dual) -> State:
        """The plan of a cut at the prices at which the lower bound is reached."""
        assert dual.moment is not None
        recompute = [0.0] * len(self.problem.ops)
        for op in dual.moment.ops:
            if op not in self.problem.required:
                recompute[op] = self.flat.seconds[op]
        prices = [dual.price * nbytes for nbytes in dual.moment.nbytes]
        return State(self.flat, cut_at(self.flat, self.cutter, recompute, prices))

    def _approach(self, state: State, limit: int, batch: float) -> State:
        """Evict in steps, so that each begins near its limit."""
        at = state.peak
        while state.peak > limit and at > limit:
            if self.deadline.passed() or (batch in SEARCH.careful_batches and self._heavy(state)):
                break
            at = max(limit, int(at * SEARCH.approach))
            state = evict(state, at, batch)
            tidy = normalise(state)
            if tidy.peak <= max(at, state.peak):
                state = tidy
        return state

    @cached_property
    def _uniform(self) -> list[State]:
        """The plans of cuts at one price for all bytes."""
        return [State(self.flat, s) for s in cuts(self.flat, self.cutter)]

    @cached_property
    def _destroyer(self) -> Destroyer:
        return Destroyer(self.flat)

    @cached_property
    def _rotor(self) -> Rotor:
        return Rotor(self.flat, self.start.peak)

    def _promising(self, states: list[State], limit: int) -> list[State]:
        """States near the limit, those first that are cheap for what they are above it."""
        near = [
            s
            for s in states
            if SEARCH.near_limit[0] * limit < s.peak < SEARCH.near_limit[1] * limit
        ]
        step = self.problem.step_seconds
        return sorted(near, key=lambda s: max(0.0, s.peak / limit - 1) * step + s.cost)

    def _settle(self, state: State, found: _Found, enough: float) -> float:
        """Normalise a state, restore what fits, and return the recompute time of the result."""
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
            restored = State(self.flat, key)
            restore(restored, found.limit, score)
            found.add(restored)
            cost = min(cost, restored.cost)
            best = found.best
            done = best is not None and (
                best.cost <= enough or restored.cost > SEARCH.too_costly * best.cost
            )
            if done or self._heavy(restored):
                break
        return cost

    # Annealed large neighbourhood search.

    def _improve(self, state: State, found: _Found, enough: float) -> None:
        limit = found.limit
        step = self.problem.step_seconds
        wanted = min(2.0, 0.5 + 20 * (state.cost - enough) / step)
        wanted /= max(1.0, 2 * state.cost / step)  # fewer rounds for expensive plans
        share = min(SEARCH.max_rounds, SEARCH.work / len(state.ops) * wanted)
        rounds = round(self.effort * share)
        rng = random.Random(limit)
        best = current = state
        for index in range(rounds):
            if self.deadline.passed() or best.cost <= enough:
                return
            destroyed = self._destroyer.destroy(current, limit, rng)
            if destroyed is None:
                continue
            tidy = normalise(destroyed)
            fresh = tidy if tidy.peak <= limit else destroyed
            if fresh.peak > limit:
                continue
            restore(fresh, limit, _noisy(rng))
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
