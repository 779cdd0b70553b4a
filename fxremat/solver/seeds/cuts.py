"""Where the search starts from: the baseline, and cuts at a range of prices.

A cut at one price for all bytes is the cheapest set to recompute for the bytes it saves; sweeping
the price walks the convex hull of that trade-off (a closure problem, parametric in the price:
Gallo, Grigoriadis, Tarjan 1989). It sees neither when bytes are live nor workspaces, so it only
proposes; evictions and restoring follow, along the exact timeline.

A second price charges a recomputed value for being live again: at 0 the cut may rebuild a long
stretch in one go, at higher shares it prefers to rebuild from nearby.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from fxremat.problem.types import Phase, Problem
from fxremat.solver.depth_first import depth_first
from fxremat.solver.flat import FlatProblem
from fxremat.solver.mincut.cutter import Cutter
from fxremat.solver.mincut.network import Prices

__all__ = ["baseline", "cut_at", "cuts", "forbidding", "just_in_time"]

SHARES = (0.0, 0.1)
PRICES = 20
DECADES = (-2.5, 1.2)  # around the price at which saving everything costs a whole step


def baseline(problem: Problem) -> list[int]:
    """The schedule that recomputes nothing but what may not be saved.

    DEFERRABLE ops run right before their first use. An unsaveable value is rebuilt before its first
    use as well and kept for the others.
    """
    makers = [problem.ops[op] if op >= 0 else None for op in problem.producer]
    saved = {
        v
        for v, maker in enumerate(makers)
        if maker and maker.phase is Phase.FORWARD and not problem.values[v].unsaveable
    }
    return just_in_time(problem, saved)


def cuts(flat: FlatProblem, cutter: Cutter) -> Iterator[list[int]]:
    """Schedules of distinct cuts over a sweep of prices."""
    seen: set[frozenset[int]] = set()
    middle = flat.problem.step_seconds / (sum(flat.saving_bytes) + 1)  # seconds per byte
    low, high = DECADES
    for share in SHARES:
        for step in range(PRICES):
            decade = low + (high - low) * step / (PRICES - 1)
            cut = cutter.cut(_prices(flat, middle * 10**decade, share))
            if cut.saved not in seen:
                seen.add(cut.saved)
                yield just_in_time(flat.problem, cut.saved)


def _prices(flat: FlatProblem, price: float, share: float) -> Prices:
    recompute = [
        0.0
        if op in flat.problem.required
        else flat.seconds[op] + share * price * sum(flat.nbytes[v] for v in flat.makes[op])
        for op in range(len(flat.seconds))
    ]
    return forbidding(flat, recompute, [price * nbytes for nbytes in flat.saving_bytes])


def forbidding(flat: FlatProblem, recompute: list[float], save: list[float]) -> Prices:
    """Prices at which no cut saves what ``flat`` forbids to save.

    That is more than the rules forbid: a DEFERRABLE op that cannot run in the forward without
    holding its inputs longer is left in the backward. Such values cost more than all others
    together.
    """
    may = flat.saveable
    dear = 1e-9 + sum(recompute) + sum(p for p, ok in zip(save, may, strict=True) if ok)
    priced = (p if ok else dear for p, ok in zip(save, may, strict=True))
    return Prices(tuple(recompute), tuple(priced))


def cut_at(
    flat: FlatProblem, cutter: Cutter, recompute: list[float], save: list[float]
) -> list[int]:
    """The schedule of the cut at given prices, in seconds, of ops and of values."""
    return just_in_time(flat.problem, cutter.cut(forbidding(flat, recompute, save)).saved)


def just_in_time(problem: Problem, saved: Set[int]) -> list[int]:
    """The schedule that saves these values and runs the rest right before its first use, once."""
    schedule: list[int] = []
    done: set[int] = set()
    phases = (Phase.FORWARD, Phase.DEFERRABLE)

    def needs(op: int) -> Iterator[int]:
        for value in (*problem.ops[op].inputs, *problem.ops[op].replay_inputs):
            maker = problem.producer[value]
            if maker >= 0 and value not in saved and problem.ops[maker].phase in phases:
                yield maker

    for op in problem.backward:
        schedule += depth_first(op, needs, done)
    return schedule
