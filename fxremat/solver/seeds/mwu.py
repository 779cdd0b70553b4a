"""Cuts at prices that vary over time: memory is dear where a plan would exceed the limit.

Saving a value pays for its bytes from its last forward use to its last backward use; recomputing
it pays from its first to its last use in the backward, besides the time of the op. When those uses
fall depends on what else is recomputed, so they are taken from the plan of the round before.
Prices follow the plan by multiplicative updates (Arora, Hazan, Kale 2012): where its live bytes are
above the limit they rise, elsewhere they fall.

A cut chooses well among values that compete at the same time, but it knows each value once, so the
plans are only seeds: the exact timeline judges them, and evicting and restoring mend them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fxremat.solver.flat import FlatProblem
from fxremat.solver.mincut.cutter import Cutter
from fxremat.solver.mincut.network import Prices
from fxremat.solver.schedule.state import State
from fxremat.solver.seeds.cuts import forbidding, just_in_time

__all__ = ["priced_cuts"]

Floats = NDArray[np.float64]
RATES = (2.0, 2.0, 1.5, 1.5, 1.0, 1.0, 0.7, 0.7, 0.5, 0.5)  # of the updates, one for each round


@dataclass(frozen=True)
class _Windows:
    """Backward ops, by their place in the backward, between which each value is read."""

    first: list[int]
    last: list[int]


def priced_cuts(flat: FlatProblem, cutter: Cutter, start: State, limit: int) -> Iterator[State]:
    """Plans of one cut a round, starting from the prices that a plan calls for.

    Args:
        flat: the problem laid out.
        cutter: cuts the problem.
        start: a plan, usually the one that recomputes nothing.
        limit: bytes above which memory grows dearer.
    """
    state = start
    total = sum(flat.seconds) / (sum(flat.saving_bytes) + 1)
    front, back = _loads(flat, state)
    over = np.concatenate([front, back]) / limit - 1
    price = np.maximum(over, 0.0) + 1e-3
    price *= total / price.sum()
    for rate in RATES:
        windows = _windows(flat, state)
        prices = _prices(flat, windows, price[: len(front)], price[len(front) :])
        state = State(flat, just_in_time(flat.problem, cutter.cut(prices).saved))
        yield state
        front, back = _loads(flat, state)
        over = np.concatenate([front, back]) / limit - 1
        price *= np.exp(rate * np.clip(over, -1.0, 1.0))


def _loads(flat: FlatProblem, state: State) -> tuple[Floats, Floats]:
    """Live bytes at each forward position, and the most up to the end of each backward op."""
    stage = np.cumsum([0, *(flat.is_backward[op] for op in state.ops[:-1])])
    back = np.zeros(len(flat.base_at))
    np.maximum.at(back, stage, state.backward)
    return state.forward.astype(np.float64), back


def _windows(flat: FlatProblem, state: State) -> _Windows:
    count = len(flat.nbytes)
    stage = np.cumsum([0, *(flat.is_backward[op] for op in state.ops[:-1])]).tolist()
    first, last = [-1] * count, [-1] * count
    for copy in state.copies():
        for use in copy.uses:
            k = stage[use]
            first[copy.value] = k if first[copy.value] < 0 else min(first[copy.value], k)
            last[copy.value] = max(last[copy.value], k)
    # A value that nothing reads now would be read where its readers' results are first needed.
    for op in reversed(flat.problem.forward):
        starts = [first[v] for v in flat.makes[op] if first[v] >= 0]
        for v in flat.reads[op] if starts else ():
            if first[v] < 0:
                first[v] = last[v] = min(starts)
    return _Windows(first, last)


def _prices(flat: FlatProblem, windows: _Windows, front: Floats, back: Floats) -> Prices:
    until = np.concatenate([[0.0], np.cumsum(back)])  # price of the first k backward ops
    rest = np.concatenate([np.cumsum(front[::-1])[::-1], [0.0]])  # of the forward from p on
    save, again = [], []
    for v in range(len(flat.nbytes)):
        if not flat.saveable[v]:
            save.append(0.0)
            again.append(0.0)
            continue
        begin = flat.born[v] if flat.hoist[flat.producer[v]] else flat.last[v] + 1
        held = rest[begin] + until[windows.last[v] + 1]
        save.append(float(flat.saving_bytes[v] * held))
        live = until[windows.last[v] + 1] - until[max(windows.first[v], 0)]
        again.append(float(flat.nbytes[v] * live))
    recompute = [
        0.0
        if op in flat.problem.required
        else flat.seconds[op] + sum(again[v] for v in flat.makes[op])
        for op in range(len(flat.seconds))
    ]
    return forbidding(flat, recompute, save)
