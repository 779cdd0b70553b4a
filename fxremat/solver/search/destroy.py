"""Ways to ruin a part of a plan, so that draining and filling it again may find a better one.

* *Force*: keep a few neighbouring results though they do not fit.
* *Swap*: save a value next to a saved one in the graph instead of that one.
* *Shrink*: drain to a lower limit.
* *Unsave*: rebuild a few neighbouring saved values.
"""

from __future__ import annotations

import random

from fxremat.solver.flat import Table
from fxremat.solver.schedule.moves import rebuild
from fxremat.solver.schedule.removal import SAVED
from fxremat.solver.schedule.state import State
from fxremat.solver.search.evict import drain

__all__ = ["Ruins"]

SHORT = 300  # ops of a schedule


class Ruins:
    """Ruins plans of one problem.

    Args:
        table: the problem laid out.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self._readers: list[list[int]] = [[] for _ in table.problem.values]
        for index in table.problem.forward:
            for value in table.reads[index]:
                self._readers[value].append(index)

    def ruin(self, state: State, limit: int, rng: random.Random) -> State | None:
        """A ruined state, drained as far as that goes; None if there is nothing to ruin."""
        draw = rng.random()
        if draw < 0.4:
            return _drain(self._forced(state, rng), limit)
        if draw < 0.5:
            swapped = self._swapped(state, limit, rng)
            return None if swapped is None else _drain(swapped, limit)
        if draw < 0.75:
            return _drain(state, int(limit * rng.uniform(0.85, 0.99)))
        values = self._stretch(state, rng)
        fresh = rebuild(state, values, limit) if values else None
        return None if fresh is None else _drain(fresh, limit)

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
        table, work = self.table, State(self.table, state.schedule())
        saved = self._droppable(work)
        if not saved:
            return None
        value = rng.choice(saved)
        near = {*table.reads[table.producer[value]]}
        near.update(v for op in self._readers[value] for v in table.makes[op])
        runs = {v: c.start for v in sorted(near) for c in work.chains.get(v, ())[:1]}
        other = [v for v, start in runs.items() if start != SAVED]
        if not other:
            return None
        change = work.removal(runs[rng.choice(other)])
        if change is not None:
            work.commit(change)
        fresh = State(table, work.schedule())
        return rebuild(fresh, [value], limit) if value in fresh.saved() else fresh

    def _stretch(self, state: State, rng: random.Random) -> list[int]:
        """A few neighbouring saved values, in the order of the forward."""
        saved = sorted(self._droppable(state), key=lambda v: (self.table.last[v], v))
        if not saved:
            return []
        at = rng.randrange(len(saved))
        return saved[at : at + rng.randint(1, 5)]

    def _droppable(self, state: State) -> list[int]:
        """Saved values that cost bytes and may be rebuilt."""
        table = self.table
        return [v for v in state.saved() if table.saving[v] and table.rerun[table.producer[v]]]


def _drain(state: State, limit: int) -> State:
    """Drain, on long schedules without the dear last resort: of many ruins some may fail."""
    return drain(state, limit, thorough=len(state.ops) <= SHORT)
