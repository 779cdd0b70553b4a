"""Moves between schedules: fill what fits, drain what overflows, put runs where they are needed.

* :func:`fill` drops recompute runs whose results can stay live within the limit, best gain per
  byte first, until none fits any more.
* :func:`drain` does the reverse: while some position is above the limit, the copies that lie idle
  there are candidates for eviction; each would be rebuilt right before its next use by the closure
  of runs that this takes. The best relief of overflow per second is taken.
  Where none brings relief, as many at once as the peak calls for are tried, and then the runs at
  the peak are moved to where more room is.
* :func:`normalise` emits every run right before its first use and forgets unused ones.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fxremat.solvers.state import SAVED, Copy, Ints, Removal, State

__all__ = ["Score", "by_area", "by_bytes", "drain", "fill", "insert", "normalise", "rebuild"]

Score = Callable[[State, Removal], float]
EPSILON = 1e-12
MOST = 60  # evictions tried one by one at most
EARLIER = 6  # backward ops that runs are moved across at most


def by_bytes(state: State, change: Removal) -> float:
    """Seconds gained for each byte that is added."""
    return change.gain / (change.added + 1)


def by_area(state: State, change: Removal) -> float:
    """Seconds gained for each byte and position that is added."""
    return change.gain / (change.area + 1)


def fill(state: State, limit: int, score: Score = by_bytes) -> None:
    """Drop runs, in place, as long as all live bytes stay within a limit (bytes).

    A run that does not fit is tried again once fewer bytes are live where it was blocked.
    """
    blocked: dict[int, tuple[Ints, int, int]] = {}
    progress = True
    while progress:
        ranked: list[tuple[float, int]] = []
        for q, op in enumerate(state.ops):
            if op >= 0 and not state.table.is_backward[op] and not _still(blocked, q):
                change = _droppable(state, q, limit, blocked)
                if change is not None:
                    ranked.append((score(state, change), -q))
        ranked.sort(reverse=True)
        progress = False
        for _, negative in ranked:
            if state.ops[-negative] >= 0:
                change = _droppable(state, -negative, limit, blocked)
                if change is not None:
                    state.commit(change)
                    progress = progress or change.gain > 0


def _still(blocked: dict[int, tuple[Ints, int, int]], q: int) -> bool:
    if q not in blocked:
        return False
    live, at, level = blocked[q]
    return int(live[at]) >= level


def _droppable(
    state: State, q: int, limit: int, blocked: dict[int, tuple[Ints, int, int]]
) -> Removal | None:
    """The removal of a run if it costs nothing and fits; where it is blocked is noted."""
    change = state.removal(q)
    if change is None or change.gain < 0:
        return None
    where = state.blocked(change, limit)
    if where is None:
        return change
    live, at = where
    blocked[q] = (live, at, int(live[at]))
    return None


@dataclass(slots=True)
class _Eviction:
    value: int
    before: int  # position of the use that the rebuilt copy serves
    runs: list[int]
    seconds: float
    ratio: float


def drain(
    state: State, limit: int, batch: float = 0.2, tries: int = 12, thorough: bool = True
) -> State:
    """Evict idle copies until all live bytes are within a limit (bytes).

    Args:
        state: where to start; it is not changed.
        limit: the limit in bytes.
        batch: evict at once what relieves this share of the overflow at the highest position.
        tries: how many single evictions to try where a batch brings no relief.
        thorough: whether to try many more evictions, and to move runs to where more room is, if
            those bring none.

    Returns:
        The state reached: within the limit, or where no eviction brings relief any more.
    """
    overflow = state.overflow(limit)
    while overflow > 0:
        whole = max(state.peak - limit, 1)
        ranked = _evictions(state, limit, whole * batch, tries)
        step = _apply(state, _portion(state, ranked, whole * batch), limit, overflow)
        step = step or _first(state, ranked[:tries], limit, overflow)
        if step is None:
            ranked = _evictions(state, limit, math.inf, tries)
            step = _apply(state, _portion(state, ranked, whole), limit, overflow)
        if step is None and thorough:
            step = _first(state, ranked[tries:MOST], limit, overflow)
            step = step or _advanced(state, limit, overflow)
        if step is None:
            return state
        state = step
        overflow = state.overflow(limit)
    return state


def _first(state: State, ranked: list[_Eviction], limit: int, overflow: int) -> State | None:
    """What the first eviction that brings relief leads to."""
    steps = (_apply(state, [eviction], limit, overflow) for eviction in ranked)
    return next((step for step in steps if step is not None), None)


def _advanced(state: State, limit: int, overflow: int) -> State | None:
    """A state in which the runs at the peak stand earlier, where less is live beside them.

    Right before its use is where a result is live for the shortest time, but not always where there
    is most room for what making it takes.
    """
    table, j = state.table, int(state.backward.argmax())
    if state.ops[j] < 0 or table.is_backward[state.ops[j]]:
        return None
    first = j
    while first and not table.is_backward[state.ops[first - 1]]:
        first -= 1
    last = j + 1
    while last < len(state.ops) and not table.is_backward[state.ops[last]]:
        last += 1
    best, at = None, first
    for _ in range(EARLIER):
        at -= 1
        while at > 0 and not table.is_backward[state.ops[at]]:
            at -= 1
        if at < 0:
            break
        for end in {j + 1, last}:
            ops = [*state.ops[:at], *state.ops[first:end], *state.ops[at:first], *state.ops[end:]]
            made = State(table, [op for op in ops if op >= 0])
            if _legal(made) and made.overflow(limit) < overflow:
                best, overflow = made, made.overflow(limit)
    return best


def rebuild(state: State, values: list[int], limit: int) -> State | None:
    """A state in which saved values are rebuilt before their first use instead of being saved."""
    closure = _Closures(state, limit)
    additions = []
    for value in values:
        before = state.chains[value][0].uses[0]
        runs = closure.of(value, before)
        if runs is not None:
            additions.append((before, runs))
    return insert(state, additions) if additions else None


def _apply(state: State, chosen: list[_Eviction], limit: int, overflow: int) -> State | None:
    if not chosen:
        return None
    step = insert(state, [(e.before, e.runs) for e in chosen])
    return step if step is not None and step.overflow(limit) < overflow else None


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
    made = State(state.table, ops)
    if not _legal(made):
        return None
    prune(made)
    return made


def _legal(state: State) -> bool:
    """Whether a state saves only what it may, and hoists no fixed op that also stands in it."""
    table = state.table
    once = {op for op in state.ops if not table.rerun[op] and not table.is_backward[op]}
    return all(
        table.saveable[v]
        and table.producer[v] not in once
        and once.isdisjoint(table.hoist[table.producer[v]])
        for v, chain in state.chains.items()
        if chain[0].start == SAVED
    )


def prune(state: State) -> None:
    """Drop runs, in place, whose results nothing reads."""
    for q in range(len(state.ops) - 1, -1, -1):
        op = state.ops[q]
        if op < 0 or state.table.is_backward[op] or any(c.uses for c in state.makes[q]):
            continue
        change = state.removal(q)
        if change is not None:
            state.commit(change)


def _evictions(state: State, limit: int, wanted: float, tries: int) -> list[_Eviction]:
    """Evictions that relieve the highest position, best relief per second first.

    The time of the last run alone bounds what a rebuild costs. So closures are made in the order
    of what they promise at best, until enough is found that nothing left can beat.
    """
    table = state.table
    back, front = int(state.backward.max(initial=0)), int(state.forward.max(initial=0))
    over = np.maximum(state.backward - limit, 0)
    over_front = np.maximum(state.forward - limit, 0)
    in_forward = front > back
    j = int(state.forward.argmax()) if in_forward else int(state.backward.argmax())
    promised: list[tuple[float, int, int, int]] = []
    for copy in state.copies():
        gap = _gap_forward(state, copy, j) if in_forward else _gap(copy, j)
        if gap is None or not table.rerun[table.producer[copy.value]]:
            continue
        after, before = gap
        relief = _relief(state, copy, after, before, over, over_front)
        if relief > 0:
            seconds = table.seconds[table.producer[copy.value]]
            promised.append((-relief / (seconds + EPSILON), before, copy.value, relief))
    promised.sort()
    closure = _Closures(state, limit)
    found: list[_Eviction] = []
    ratios: list[float] = []  # of those found, ascending
    for negative, before, value, relief in promised:
        if len(ratios) >= tries and -negative <= ratios[-tries]:
            bar = ratios[-tries]
            if sum(table.nbytes[e.value] for e in found if e.ratio >= bar) >= wanted:
                break
        runs = closure.of(value, before)
        if runs is not None:
            seconds = sum(table.seconds[o] for o in runs)
            found.append(_Eviction(value, before, runs, seconds, relief / (seconds + EPSILON)))
            insort(ratios, found[-1].ratio)
    found.sort(key=lambda e: (-e.ratio, e.before, e.value))
    return found


def _gap(copy: Copy, j: int) -> tuple[int, int] | None:
    """The idle stretch of a copy around position ``j`` as (use before or start, use after)."""
    if copy.start >= j or copy.end <= j:
        return None
    index = bisect_left(copy.uses, j)
    if copy.uses[index] == j:
        return None
    return (copy.uses[index - 1] if index else copy.start), copy.uses[index]


def _gap_forward(state: State, copy: Copy, j: int) -> tuple[int, int] | None:
    if copy.start != SAVED or state.kept_from(copy.value) > j:
        return None
    return SAVED, copy.uses[0]


def _relief(state: State, copy: Copy, after: int, before: int, over: Ints, over_front: Ints) -> int:
    saved = copy.start == SAVED
    nbytes = state.table.saving[copy.value] if saved else state.table.nbytes[copy.value]
    relief = int(np.minimum(over[after + 1 : before], nbytes).sum())
    if saved and after == SAVED:
        relief += int(np.minimum(over_front[state.kept_from(copy.value) :], nbytes).sum())
    return relief


def _portion(state: State, ranked: list[_Eviction], wanted: float) -> list[_Eviction]:
    """The best evictions that together free so many bytes."""
    chosen: list[_Eviction] = []
    total = 0
    for eviction in ranked:
        chosen.append(eviction)
        total += state.table.nbytes[eviction.value]
        if total >= wanted:
            break
    return chosen


class _Closures:
    """Runs that rebuild a value right before a position, inputs before their users."""

    def __init__(self, state: State, limit: int) -> None:
        self.state, self.limit = state, limit
        self.live: dict[int, Copy] = {}

    def of(self, value: int, position: int) -> list[int] | None:
        runs: dict[int, None] = {}
        return list(runs) if self._make(value, position, runs) else None

    def _make(self, value: int, position: int, runs: dict[int, None]) -> bool:
        op = self.state.table.producer[value]
        if op in runs:
            return True
        if not self.state.table.rerun[op] or len(runs) > 400:
            return False
        for v in self.state.table.reads[op]:
            had = self._have(v, position) or self._make(v, position, runs)
            if not had and not self._exists(v, position):
                return False
        runs[op] = None
        return True

    def _exists(self, value: int, position: int) -> bool:
        """Whether some copy can be stretched to the position, fit or not."""
        return self._latest(value, position) is not None or self.state.table.saveable[value]

    def _latest(self, value: int, position: int) -> Copy | None:
        found = None
        for copy in self.state.chains.get(value, ()):
            if copy.start >= position:
                break
            found = copy
        return found

    def _have(self, value: int, position: int) -> bool:
        """Whether a copy is live at the position, or can stay so within the limit."""
        table, copy = self.state.table, self._latest(value, position)
        if copy is None:
            return table.saveable[value] and table.saving[value] == 0
        if copy.end >= position or (copy.start == SAVED and table.saving[value] == 0):
            return True
        gap = self.state.backward[copy.end + 1 : position]
        return not len(gap) or int(gap.max()) + table.nbytes[value] <= self.limit


def normalise(state: State) -> State:
    """Every run right before its first use, unused ones forgotten."""
    ops: list[int] = []
    done: set[int] = set()
    for q, op in enumerate(state.ops):
        if op >= 0 and state.table.is_backward[op]:
            _emit(state, q, ops, done)
    return State(state.table, ops)


def _emit(state: State, q: int, ops: list[int], done: set[int]) -> None:
    stack = [(q, 0)]
    while stack:
        at, index = stack.pop()
        if at in done:
            continue
        reads = state.reads[at]
        while index < len(reads) and (reads[index].start == SAVED or reads[index].start in done):
            index += 1
        if index < len(reads):
            stack += [(at, index + 1), (reads[index].start, 0)]
        else:
            done.add(at)
            ops.append(state.ops[at])
