"""One limit: from starts through drain and fill to a neighbourhood search.

1. *Starts.* The plans known on both sides of the limit; cuts at one price for all bytes
   (:mod:`.starts`); a cut at the price at which the lower bound is reached (:mod:`fxremat.bound`);
   cuts at prices over time (:mod:`.priced`).
2. Each start is *drained* to the limit, *normalised* and *filled* (:mod:`.moves`).
3. A *large neighbourhood search* (Shaw 1998) ruins a part of the best plan and drains and fills it
   again, with annealed acceptance and randomly perturbed rankings. It ends when the lower bound
   proves the plan good enough.
4. A *mixed-integer program* looks for the best plan of single recomputes where the problem is
   small (:mod:`.exact`).

Work is counted in rounds, never in seconds, and the random stream is seeded with the limit.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from fxremat.bound import Dual, TimeBound
from fxremat.mincut import Cutter
from fxremat.problem import Problem
from fxremat.solvers.exact import polish
from fxremat.solvers.moves import Score, by_area, by_bytes, drain, fill, normalise, rebuild
from fxremat.solvers.pool import Point
from fxremat.solvers.priced import priced_cuts
from fxremat.solvers.starts import cut_at, cuts
from fxremat.solvers.state import SAVED, Copy, Removal, State
from fxremat.solvers.table import Table

__all__ = ["PROVED", "Clock", "Search"]

PROVED = 5e-4  # of the step's time: a plan this near to the lower bound is not improved further
WORK = 10_000  # ops in the schedules of all rounds of the neighbourhood search, at effort 1
ROUNDS = 120  # at most
LONG = 1000  # ops of a schedule above which starts are chosen more sparingly
NEAR = (0.85, 1.7)  # cuts whose peak is within these multiples of the limit are tried
HOMOTOPY = 0.85  # a limit further below the plan to start from is approached in such steps
WORSE = 1.1  # a start that once filled is dearer than the best by this factor is left
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
        self._cuts: list[State] | None = None
        self._readers: list[list[int]] = [[] for _ in problem.values]
        for index in problem.forward:
            for value in table.reads[index]:
                self._readers[value].append(index)

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
            if found.best is not None and found.best.cost <= enough:
                break
        best = found.best
        if best is not None and best.cost > enough:
            self._improve(best, found, enough)
        self._polish(found, enough)
        return sorted(found.states, key=lambda s: s.cost)

    def _polish(self, found: _Found, enough: float) -> None:
        """Let a mixed-integer program look for something better, where the problem is small."""
        best = found.best
        if self.effort <= 0 or self.clock.check() or (best is not None and best.cost <= enough):
            return
        point = polish(self.problem, found.limit, None if best is None else best.schedule())
        if point is not None:
            found.add(State(self.table, point.schedule))

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
            recompute = [0.0] * len(self.problem.ops)
            for op in dual.moment.ops:
                if op not in self.problem.needed:
                    recompute[op] = self.table.seconds[op]
            prices = [dual.price * nbytes for nbytes in dual.moment.nbytes]
            schedule = cut_at(self.problem, self.table, self.cutter, recompute, prices)
            yield drain(State(self.table, schedule), limit)
        coarse = depth < COARSE
        for state in self._promising(self._uniform(), limit)[: 6 if coarse else 1]:
            yield drain(state, limit)
        if coarse and not large:
            yield self._approach(upper, limit, 0.05)
        if coarse and limit > 0:
            priced = priced_cuts(self.problem, self.table, self.cutter, self.start, limit)
            for state in self._promising(list(priced), limit)[:3]:
                yield drain(state, limit)

    def _approach(self, state: State, limit: int, batch: float) -> State:
        """Drain in steps, so that each starts near its limit."""
        at = state.peak
        while at > limit and not self.clock.check():
            at = max(limit, int(at * HOMOTOPY))
            state = drain(state, at, batch)
            tidy = normalise(state)
            if tidy.peak <= max(at, state.peak):
                state = tidy
            if state.peak > at:
                break
        return state

    def _uniform(self) -> list[State]:
        if self._cuts is None:
            self._cuts = [State(self.table, s) for s in cuts(self.problem, self.table, self.cutter)]
        return self._cuts

    def _promising(self, states: list[State], limit: int) -> list[State]:
        """States near the limit, those first that are cheap for what they are above it."""
        near = [s for s in states if NEAR[0] * limit < s.peak < NEAR[1] * limit]
        step = self.problem.step_seconds
        return sorted(near, key=lambda s: max(0.0, s.peak / limit - 1) * step + s.cost)

    def _settle(self, state: State, found: _Found, enough: float) -> None:
        """Normalise and fill a drained state."""
        tidy = normalise(state)
        if tidy.peak <= max(state.peak, found.limit):
            state = tidy
        if state.peak > found.limit:
            return
        key = tuple(state.schedule())
        if key in found.seen:
            return
        found.seen.add(key)
        found.add(state)
        for score in (by_bytes, by_area):
            filled = State(self.table, key)
            fill(filled, found.limit, score)
            found.add(filled)
            best = found.best
            if best is not None and (best.cost <= enough or filled.cost > WORSE * best.cost):
                return

    # Annealed large neighbourhood search.

    def _improve(self, state: State, found: _Found, enough: float) -> None:
        limit = found.limit
        open_gap = (state.cost - enough) / self.problem.step_seconds
        share = min(ROUNDS, WORK / len(state.ops) * min(2.0, 0.5 + 20 * open_gap))
        rounds = round(self.effort * share)
        rng = random.Random(limit)
        best = current = state
        for index in range(rounds):
            if self.clock.check() or best.cost <= enough:
                return
            ruined = self._ruin(current, limit, rng)
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

    def _ruin(self, state: State, limit: int, rng: random.Random) -> State | None:
        draw = rng.random()
        if draw < 0.4:
            return self._drain(self._forced(state, rng), limit)
        if draw < 0.5:
            swapped = self._swapped(state, limit, rng)
            return None if swapped is None else self._drain(swapped, limit)
        if draw < 0.75:
            return self._drain(state, int(limit * rng.uniform(0.85, 0.99)))
        values = self._stretch(state, rng)
        fresh = rebuild(state, values, limit) if values else None
        return None if fresh is None else self._drain(fresh, limit)

    @staticmethod
    def _drain(state: State, limit: int) -> State:
        """Drain without the dear last resort: of many ruins some may fail."""
        return drain(state, limit, advance=False)

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

    def _swapped(self, state: State, limit: int, rng: random.Random) -> State | None:
        """Save a value that some saved value is made from, or that is made from it, instead."""
        table, problem = self.table, self.problem
        saved = [v for v, chain in state.chains.items() if chain[0].start == SAVED]
        saved = [v for v in saved if table.saving[v] and table.rerun[table.producer[v]]]
        if not saved:
            return None
        value = rng.choice(saved)
        near = {*table.reads[table.producer[value]]}
        near.update(v for op in self._readers[value] for v in table.makes[op])
        runs = {v: c.start for v in sorted(near) for c in state.chains.get(v, ())[:1]}
        other = [v for v, start in runs.items() if start != SAVED]
        if not other:
            return None
        work = State(table, state.schedule())
        change = work.removal(runs[rng.choice(other)]) if work.ops == state.ops else None
        if change is not None:
            work.commit(change)
        fresh = State(table, work.schedule())
        if fresh.chains.get(value, [Copy(value, 0)])[0].start != SAVED:
            return fresh
        return rebuild(fresh, [value], limit)

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


def _noisy(rng: random.Random) -> Score:
    base = rng.choice((by_bytes, by_area))

    def score(state: State, change: Removal) -> float:
        return base(state, change) * math.exp(rng.gauss(0.0, 0.3))

    return score
