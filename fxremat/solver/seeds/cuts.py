"""Where the search starts from: the baseline, and cuts at a range of prices.

A cut at one price for all bytes is the cheapest set to recompute for the bytes it saves; sweeping
the price walks the convex hull of that trade-off (a closure problem, parametric in the price:
Gallo, Grigoriadis, Tarjan 1989). It sees neither when bytes are live nor workspaces, so it only
proposes; what it proposes is drained and filled along the exact timeline.

A second price charges a recomputed value for being live again: at 0 the cut may rebuild a long
stretch in one go, at higher shares it prefers to rebuild from nearby.
"""

from __future__ import annotations

from collections.abc import Iterator

from fxremat.problem.types import Phase, Problem
from fxremat.solver.flat import Table
from fxremat.solver.mincut.cutter import Cut, Cutter
from fxremat.solver.mincut.network import Prices

__all__ = ["baseline", "cut_at", "cuts", "forbidding", "just_in_time", "schedule_of"]

SHARES = (0.0, 0.1)
PRICES = 20
DECADES = (-2.5, 1.2)  # around the price at which saving everything costs a whole step


def baseline(problem: Problem) -> list[int]:
    """The schedule that recomputes nothing but what may not be saved.

    DEFERRABLE ops run right before their first use. An unsaveable value is rebuilt before its first
    use as well and kept for the others.
    """
    return just_in_time(problem, {v for v in range(len(problem.values)) if _can_save(problem, v)})


def _can_save(problem: Problem, value: int) -> bool:
    op = problem.producer[value]
    forward = op >= 0 and problem.ops[op].phase is Phase.FORWARD
    return not problem.values[value].unsaveable and forward


def cuts(problem: Problem, table: Table, cutter: Cutter) -> Iterator[list[int]]:
    """Schedules of distinct cuts over a sweep of prices."""
    seen: set[frozenset[int]] = set()
    total = sum(table.saving) + 1
    low, high = DECADES
    for share in SHARES:
        for step in range(PRICES):
            decade = low + (high - low) * step / (PRICES - 1)
            cut = cutter.cut(
                _prices(problem, table, problem.step_seconds / total * 10**decade, share)
            )
            if cut.saved not in seen:
                seen.add(cut.saved)
                yield schedule_of(problem, cut)


def _prices(problem: Problem, table: Table, price: float, share: float) -> Prices:
    recompute = [
        0.0
        if op in problem.required
        else table.seconds[op] + share * price * sum(table.nbytes[v] for v in table.makes[op])
        for op in range(len(problem.ops))
    ]
    return forbidding(table, recompute, [price * nbytes for nbytes in table.saving])


def forbidding(table: Table, recompute: list[float], save: list[float]) -> Prices:
    """Prices at which no cut saves what the table forbids to save.

    That is more than the rules forbid: a DEFERRABLE op that cannot run in the forward without
    holding its inputs longer is left in the backward. Such values cost more than all others
    together.
    """
    may = table.saveable
    dear = 1e-9 + sum(recompute) + sum(p for p, ok in zip(save, may, strict=True) if ok)
    priced = (p if ok else dear for p, ok in zip(save, may, strict=True))
    return Prices(tuple(recompute), tuple(priced))


def cut_at(
    problem: Problem, table: Table, cutter: Cutter, recompute: list[float], save: list[float]
) -> list[int]:
    """The schedule of the cut at given prices, in seconds, of ops and of values."""
    return schedule_of(problem, cutter.cut(forbidding(table, recompute, save)))


def schedule_of(problem: Problem, cut: Cut) -> list[int]:
    """The schedule that saves what a cut saves and rebuilds the rest just in time, once each."""
    return just_in_time(problem, set(cut.saved))


def just_in_time(problem: Problem, saved: set[int]) -> list[int]:
    """Every run right before its first use, each at most once, but for saved values."""
    producer = problem.producer
    schedule: list[int] = []
    done: set[int] = set()
    for op in problem.backward:
        stack = [(op, 0)]
        while stack:
            at, index = stack.pop()
            if at in done:
                continue
            inputs = (*problem.ops[at].inputs, *problem.ops[at].replay_inputs)
            while index < len(inputs) and not _missing(
                problem, producer[inputs[index]], inputs[index], saved, done
            ):
                index += 1
            if index < len(inputs):
                stack += [(at, index + 1), (producer[inputs[index]], 0)]
            else:
                done.add(at)
                schedule.append(at)
    return schedule


def _missing(problem: Problem, op: int, value: int, saved: set[int], done: set[int]) -> bool:
    tracked = op >= 0 and problem.ops[op].phase in (Phase.FORWARD, Phase.DEFERRABLE)
    return tracked and value not in saved and op not in done
