"""Evict copies that lie idle while some position is above a limit.

Each evicted copy would be rebuilt right before its next use by the closure of runs that this takes;
the best relief of overflow per second is taken. Where no eviction brings relief, as many at once as
the peak calls for are tried, and then the runs at the peak are moved to where more room is.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np

from fxremat.solver.flat import Ints
from fxremat.solver.schedule.moves import Closures, insert, legal
from fxremat.solver.schedule.removal import SAVED, EditableCopy
from fxremat.solver.schedule.state import State
from fxremat.solver.tuning import SEARCH

__all__ = ["evict"]

EPSILON = 1e-12


@dataclass(slots=True)
class _Eviction:
    value: int
    before: int  # position of the use that the rebuilt copy serves
    runs: list[int]
    ratio: float


def evict(
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
            step = _first(state, ranked[tries : SEARCH.single_evictions], limit, overflow)
            step = step or _advanced(state, limit, overflow)
        if step is None:
            return state
        if len(step.ops) > state.flat.max_length:
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
    flat, j = state.flat, int(state.backward.argmax())
    if state.ops[j] < 0 or flat.is_backward[state.ops[j]]:
        return None
    first = j
    while first and not flat.is_backward[state.ops[first - 1]]:
        first -= 1
    last = j + 1
    while last < len(state.ops) and not flat.is_backward[state.ops[last]]:
        last += 1
    best, at = None, first
    for _ in range(SEARCH.moved_across):
        at -= 1
        while at > 0 and not flat.is_backward[state.ops[at]]:
            at -= 1
        if at < 0:
            break
        for end in {j + 1, last}:
            ops = [*state.ops[:at], *state.ops[first:end], *state.ops[at:first], *state.ops[end:]]
            made = State(flat, [op for op in ops if op >= 0])
            if legal(made) and made.overflow(limit) < overflow:
                best, overflow = made, made.overflow(limit)
    return best


def _apply(state: State, chosen: list[_Eviction], limit: int, overflow: int) -> State | None:
    if not chosen:
        return None
    step = insert(state, [(e.before, e.runs) for e in chosen])
    return step if step is not None and step.overflow(limit) < overflow else None


def _evictions(state: State, limit: int, wanted: float, tries: int) -> list[_Eviction]:
    """Evictions that relieve the highest position, best relief per second first.

    The time of the last run alone bounds what a rebuild costs. So closures are made in the order
    of what they promise at best, until enough is found that nothing left can beat.
    """
    flat = state.flat
    back, front = int(state.backward.max(initial=0)), int(state.forward.max(initial=0))
    over = np.maximum(state.backward - limit, 0)
    over_front = np.maximum(state.forward - limit, 0)
    in_forward = front > back
    j = int(state.forward.argmax()) if in_forward else int(state.backward.argmax())
    promised: list[tuple[float, int, int, int]] = []
    for copy in state.copies():
        gap = _gap_forward(state, copy, j) if in_forward else _gap(copy, j)
        if gap is None or not flat.can_rerun[flat.producer[copy.value]]:
            continue
        after, before = gap
        relief = _relief(state, copy, after, before, over, over_front)
        if relief > 0:
            seconds = flat.seconds[flat.producer[copy.value]]
            promised.append((-relief / (seconds + EPSILON), before, copy.value, relief))
    promised.sort()
    closure = Closures(state, limit)
    found: list[_Eviction] = []
    ratios: list[float] = []  # of those found, ascending
    for negative, before, value, relief in promised:
        if len(ratios) >= tries and -negative <= ratios[-tries]:
            bar = ratios[-tries]
            if sum(flat.nbytes[e.value] for e in found if e.ratio >= bar) >= wanted:
                break
        runs = closure.of(value, before)
        if runs is not None:
            seconds = sum(flat.seconds[o] for o in runs)
            found.append(_Eviction(value, before, runs, relief / (seconds + EPSILON)))
            insort(ratios, found[-1].ratio)
    found.sort(key=lambda e: (-e.ratio, e.before, e.value))
    return found


def _gap(copy: EditableCopy, j: int) -> tuple[int, int] | None:
    """The idle stretch of a copy around position ``j`` as (use before or start, use after)."""
    if copy.start >= j or copy.end <= j:
        return None
    index = bisect_left(copy.uses, j)
    if copy.uses[index] == j:
        return None
    return (copy.uses[index - 1] if index else copy.start), copy.uses[index]


def _gap_forward(state: State, copy: EditableCopy, j: int) -> tuple[int, int] | None:
    if copy.start != SAVED or state.kept_from(copy.value) > j:
        return None
    return SAVED, copy.uses[0]


def _relief(
    state: State, copy: EditableCopy, after: int, before: int, over: Ints, over_front: Ints
) -> int:
    saved = copy.start == SAVED
    nbytes = state.nbytes(copy)
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
        total += state.flat.nbytes[eviction.value]
        if total >= wanted:
            break
    return chosen
