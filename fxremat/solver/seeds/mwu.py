"""Cuts at prices that vary over time: memory is dear where a plan would exceed the limit.

Saving a value pays for its bytes from its last forward use to its last backward use; recomputing
it pays from its first to its last use in the backward, besides the time of the op. When those uses
fall depends on what else is recomputed, so they are taken from the plan of the round before.
Prices follow the plan by multiplicative updates (Arora, Hazan, Kale 2012): where its live bytes are
above the limit they rise, elsewhere they fall.

A cut chooses well among values that compete at the same time, but it knows each value once, so the
plans are only starts: the exact timeline judges them, and drains and fills what they miss.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fxremat.problem.types import Phase, Problem
from fxremat.solver.flat import Table
from fxremat.solver.mincut.cutter import Cutter
from fxremat.solver.mincut.network import Prices
from fxremat.solver.schedule.state import State
from fxremat.solver.seeds.cuts import forbidding, schedule_of

__all__ = ["priced_cuts"]

Floats = NDArray[np.float64]
RATES = (2.0, 2.0, 1.5, 1.5, 1.0, 1.0, 0.7, 0.7, 0.5, 0.5)  # of the updates, one for each round


@dataclass(frozen=True)
class _Windows:
    """Backward ops, by their place in the backward, between which each value is read."""

    first: list[int]
    last: list[int]


def priced_cuts(
    problem: Problem, table: Table, cutter: Cutter, start: State, limit: int
) -> Iterator[State]:
    """Plans of one cut a round, starting from the prices that a plan calls for.

    Args:
        problem: the problem.
        table: its layout.
        cutter: cuts the problem.
        start: a plan, usually the one that recomputes nothing.
        limit: bytes above which memory grows dearer.
    """
    state = start
    total = sum(table.seconds) / (sum(table.saving) + 1)
    front, back = _loads(table, state)
    over = np.concatenate([front, back]) / limit - 1
    price = np.maximum(over, 0.0) + 1e-3
    price *= total / price.sum()
    for rate in RATES:
        windows = _windows(problem, table, state)
        prices = _prices(problem, table, windows, price[: len(front)], price[len(front) :])
        state = State(table, schedule_of(problem, cutter.cut(prices)))
        yield state
        front, back = _loads(table, state)
        over = np.concatenate([front, back]) / limit - 1
        price *= np.exp(rate * np.clip(over, -1.0, 1.0))


def _loads(table: Table, state: State) -> tuple[Floats, Floats]:
    """Live bytes at each forward position, and the most up to the end of each backward op."""
    stage = np.cumsum([0, *(table.is_backward[op] for op in state.ops[:-1])])
    back = np.zeros(len(table.at))
    np.maximum.at(back, stage, state.backward)
    return state.forward.astype(np.float64), back


def _windows(problem: Problem, table: Table, state: State) -> _Windows:
    count = len(problem.values)
    stage = np.cumsum([0, *(table.is_backward[op] for op in state.ops[:-1])]).tolist()
    first, last = [-1] * count, [-1] * count
    for copy in state.copies():
        for use in copy.uses:
            k = stage[use]
            first[copy.value] = k if first[copy.value] < 0 else min(first[copy.value], k)
            last[copy.value] = max(last[copy.value], k)
    # A value that nothing reads now would be read where its readers' results are first needed.
    for op in reversed(problem.forward):
        starts = [first[v] for v in table.makes[op] if first[v] >= 0]
        for v in table.reads[op] if starts else ():
            if first[v] < 0:
                first[v] = last[v] = min(starts)
    return _Windows(first, last)


def _prices(
    problem: Problem, table: Table, windows: _Windows, front: Floats, back: Floats
) -> Prices:
    until = np.concatenate([[0.0], np.cumsum(back)])  # price of the first k backward ops
    rest = np.concatenate([np.cumsum(front[::-1])[::-1], [0.0]])  # of the forward from p on
    save, again = [], []
    for v in range(len(problem.values)):
        if not table.saveable[v]:
            save.append(0.0)
            again.append(0.0)
            continue
        begin = table.born[v] if table.hoist[table.producer[v]] else table.last[v] + 1
        held = rest[begin] + until[windows.last[v] + 1]
        save.append(float(table.saving[v] * held))
        live = until[windows.last[v] + 1] - until[max(windows.first[v], 0)]
        again.append(float(table.nbytes[v] * live))
    recompute = [
        0.0
        if problem.ops[op].phase is Phase.DEFERRABLE and op in problem.required
        else table.seconds[op] + sum(again[v] for v in table.makes[op])
        for op in range(len(problem.ops))
    ]
    return forbidding(table, recompute, save)
