"""Restore what fits: drop recompute runs whose results can stay live within a limit.

The best gain per byte goes first, until none fits any more.
"""

from __future__ import annotations

from collections.abc import Callable

from fxremat.solver.flat import Ints
from fxremat.solver.schedule.removal import Removal
from fxremat.solver.schedule.state import State

__all__ = ["Score", "by_area", "by_bytes", "restore"]

Score = Callable[[State, Removal], float]


def by_bytes(state: State, change: Removal) -> float:
    """Seconds gained for each byte that is added."""
    return change.gain / (change.added + 1)


def by_area(state: State, change: Removal) -> float:
    """Seconds gained for each byte and position that is added."""
    return change.gain / (change.area + 1)


def restore(state: State, limit: int, score: Score = by_bytes) -> None:
    """Drop runs, in place, as long as all live bytes stay within a limit (bytes).

    A run that does not fit is tried again once fewer bytes are live where it was blocked.
    """
    blocked: dict[int, tuple[Ints, int, int]] = {}
    progress = True
    while progress:
        ranked: list[tuple[float, int]] = []
        for q, op in enumerate(state.ops):
            if op >= 0 and not state.flat.is_backward[op] and not _still(blocked, q):
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
