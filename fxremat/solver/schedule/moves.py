"""Edits of a schedule: put runs where they are needed, drop those that nothing reads.

* :func:`insert` puts runs before positions; :class:`Closures` tells which runs rebuild a value.
* :func:`rebuild` lets saved values be rebuilt instead.
* :func:`normalise` emits every run right before its first use and forgets unused ones.
"""

from __future__ import annotations

from fxremat.solver.depth_first import depth_first
from fxremat.solver.schedule.removal import SAVED, EditableCopy
from fxremat.solver.schedule.state import State

__all__ = ["Closures", "insert", "legal", "normalise", "prune", "rebuild"]


def rebuild(state: State, values: list[int], limit: int) -> State | None:
    """A state in which saved values are rebuilt before their first use instead of being saved."""
    closure = Closures(state, limit)
    additions = []
    for value in values:
        before = state.chains[value][0].uses[0]
        runs = closure.of(value, before)
        if runs is not None:
            additions.append((before, runs))
    return insert(state, additions) if additions else None


def insert(state: State, additions: list[tuple[int, list[int]]]) -> State | None:
    """A state with runs put before positions, or None if rules forbid it."""
    at: dict[int, dict[int, None]] = {}
    for position, runs in additions:
        at.setdefault(position, {}).update(dict.fromkeys(runs))
    ops: list[int] = []
    for q, op in enumerate(state.ops):
        if q in at:
            ops += at[q]
        if op >= 0:
            ops.append(op)
    made = State(state.flat, ops)
    if not legal(made):
        return None
    prune(made)
    return made


def legal(state: State) -> bool:
    """Whether a state saves only what it may, and hoists no fixed op that also stands in it."""
    flat = state.flat
    once = {op for op in state.ops if not flat.can_rerun[op] and not flat.is_backward[op]}
    return all(
        flat.saveable[v]
        and flat.producer[v] not in once
        and once.isdisjoint(flat.hoist[flat.producer[v]])
        for v in state.saved()
    )


def prune(state: State) -> None:
    """Drop runs, in place, whose results nothing reads."""
    for q in range(len(state.ops) - 1, -1, -1):
        op = state.ops[q]
        if op < 0 or state.flat.is_backward[op] or any(c.uses for c in state.makes[q]):
            continue
        change = state.removal(q)
        if change is not None:
            state.commit(change)


class Closures:
    """Runs that rebuild a value right before a position, inputs before their users.

    Args:
        state: the schedule in which they would stand.
        limit: bytes within which a copy may be stretched up to the position.
    """

    def __init__(self, state: State, limit: int) -> None:
        self.state, self.limit = state, limit

    def of(self, value: int, position: int) -> list[int] | None:
        """The runs, in order, or None if rules forbid it."""
        runs: dict[int, None] = {}
        return list(runs) if self._make(value, position, runs) else None

    def _make(self, value: int, position: int, runs: dict[int, None]) -> bool:
        op = self.state.flat.producer[value]
        if op in runs:
            return True
        if not self.state.flat.can_rerun[op] or len(runs) > 400:
            return False
        for v in self.state.flat.reads[op]:
            had = self._have(v, position) or self._make(v, position, runs)
            if not had and not self._exists(v, position):
                return False
        runs[op] = None
        return True

    def _exists(self, value: int, position: int) -> bool:
        """Whether some copy can be stretched to the position, fit or not."""
        return self._latest(value, position) is not None or self.state.flat.saveable[value]

    def _latest(self, value: int, position: int) -> EditableCopy | None:
        found = None
        for copy in self.state.chains.get(value, ()):
            if copy.start >= position:
                break
            found = copy
        return found

    def _have(self, value: int, position: int) -> bool:
        """Whether a copy is live at the position, or can stay so within the limit."""
        flat, copy = self.state.flat, self._latest(value, position)
        if copy is None:
            return flat.saveable[value] and flat.saving_bytes[value] == 0
        if copy.end >= position or (copy.start == SAVED and flat.saving_bytes[value] == 0):
            return True
        gap = self.state.backward[copy.end + 1 : position]
        return not len(gap) or int(gap.max()) + flat.nbytes[value] <= self.limit


def normalise(state: State) -> State:
    """Every run right before its first use, unused ones forgotten."""
    ops: list[int] = []
    done: set[int] = set()

    def needs(q: int) -> list[int]:
        return [copy.start for copy in state.reads[q] if copy.start != SAVED]

    for q, op in enumerate(state.ops):
        if op >= 0 and state.flat.is_backward[op]:
            ops += (state.ops[at] for at in depth_first(q, needs, done))
    return State(state.flat, ops)
