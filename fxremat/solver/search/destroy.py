"""Ways to destroy a part of a plan, so that evicting and restoring may find a better one.

* *Force*: keep a few neighbouring results though they do not fit.
* *Swap*: save a value next to a saved one in the graph instead of that one.
* *Shrink*: evict to a lower limit.
* *Unsave*: rebuild a few neighbouring saved values.
"""

from __future__ import annotations

import random

from fxremat.solver.flat import FlatProblem
from fxremat.solver.schedule.moves import rebuild
from fxremat.solver.schedule.removal import SAVED
from fxremat.solver.schedule.state import State
from fxremat.solver.search.evict import evict
from fxremat.solver.tuning import SEARCH

__all__ = ["Destroyer"]


class Destroyer:
    """Destroys parts of plans of one problem.

    Args:
        flat: the problem laid out.
    """

    def __init__(self, flat: FlatProblem) -> None:
        self.flat = flat
        self._readers: list[list[int]] = [[] for _ in flat.problem.values]
        for index in flat.problem.forward:
            for value in flat.reads[index]:
                self._readers[value].append(index)

    def destroy(self, state: State, limit: int, rng: random.Random) -> State | None:
        """A state with a part destroyed, evicted as far as that goes; None if nothing can be."""
        draw = rng.random()
        if draw < 0.4:
            return _evict(self._forced(state, rng), limit)
        if draw < 0.5:
            swapped = self._swapped(state, limit, rng)
            return None if swapped is None else _evict(swapped, limit)
        if draw < 0.75:
            return _evict(state, int(limit * rng.uniform(0.85, 0.99)))
        values = self._stretch(state, rng)
        fresh = rebuild(state, values, limit) if values else None
        return None if fresh is None else _evict(fresh, limit)

    def _forced(self, state: State, rng: random.Random) -> State:
        """Drop a few neighbouring runs though they do not fit."""
        work = State(self.flat, state.schedule())
        runs = [q for q, op in enumerate(work.ops) if not self.flat.is_backward[op]]
        if not runs:
            return work
        centre = rng.choice(runs)
        near = sorted(runs, key=lambda q: abs(q - centre))[:12]
        for q in rng.sample(near, min(rng.randint(1, 4), len(near))):
            change = work.removal(q) if work.ops[q] >= 0 else None
            if change is not None:
                work.commit(change)
        return State(self.flat, work.schedule())

    def _swapped(self, state: State, limit: int, rng: random.Random) -> State | None:
        """Save a value that some saved value is made from, or that is made from it, instead."""
        flat, work = self.flat, State(self.flat, state.schedule())
        saved = self._droppable(work)
        if not saved:
            return None
        value = rng.choice(saved)
        near = {*flat.reads[flat.producer[value]]}
        near.update(v for op in self._readers[value] for v in flat.makes[op])
        runs = {v: c.start for v in sorted(near) for c in work.chains.get(v, ())[:1]}
        other = [v for v, start in runs.items() if start != SAVED]
        if not other:
            return None
        change = work.removal(runs[rng.choice(other)])
        if change is not None:
            work.commit(change)
        fresh = State(flat, work.schedule())
        return rebuild(fresh, [value], limit) if value in fresh.saved() else fresh

    def _stretch(self, state: State, rng: random.Random) -> list[int]:
        """A few neighbouring saved values, in the order of the forward."""
        saved = sorted(self._droppable(state), key=lambda v: (self.flat.last[v], v))
        if not saved:
            return []
        at = rng.randrange(len(saved))
        return saved[at : at + rng.randint(1, 5)]

    def _droppable(self, state: State) -> list[int]:
        """Saved values that cost bytes and may be rebuilt."""
        flat = self.flat
        return [
            v for v in state.saved() if flat.saving_bytes[v] and flat.can_rerun[flat.producer[v]]
        ]


def _evict(state: State, limit: int) -> State:
    """Evict, on long schedules without the costly last resort: some of many attempts may fail."""
    return evict(state, limit, thorough=len(state.ops) <= SEARCH.thorough_length)
