"""What charts of memory over time show: bytes by why they are live, and those of the baseline."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fxremat.inspect.step import PlannedStep
from fxremat.problem.liveness import Interval, Occupancy

__all__ = ["bands", "baseline_levels", "stretches"]


def stretches(seconds: Sequence[float], most: int) -> list[tuple[int, int]]:
    """Neighbouring ops that are drawn as one, as positions from and to (excluded), at most so many.

    Ops stand together only where they are few and short, so the picture is right by op and by time.
    """
    count = len(seconds)
    if count <= most:
        return list(pairwise(range(count + 1)))
    few, short = math.ceil(4 * count / most), 4 * math.fsum(seconds) / most
    edges, since = [0], 0.0
    for position, took in enumerate(seconds):
        since += took
        if position > edges[-1] and (position - edges[-1] == few or since > short):
            edges.append(position)
            since = took
    return list(pairwise([*edges, count]))


def bands(line: Occupancy, names: int, of: Callable[[Interval], int]) -> NDArray[np.int64]:
    """Live bytes at each position of the step, by group; the last group is the workspace.

    Args:
        line: what is live when.
        names: how many groups there are.
        of: the group of a copy.
    """
    change = np.zeros((names, len(line.ops) + 1), dtype=np.int64)
    for one in line.intervals:
        change[of(one), one.start] += one.nbytes
        change[of(one), one.end + 1] -= one.nbytes
    levels = change.cumsum(axis=1)[:, :-1]
    levels[-1] += np.array(line.workspace, dtype=np.int64)
    return levels


def baseline_levels(step: PlannedStep) -> list[tuple[int, int]]:
    """What would be live without recomputing, as positions of the plan's step and bytes.

    The two run different ops. They are aligned where they run the same op of the backward; what the
    baseline runs before one counts there, with its highest level. Where the rules allow no such
    plan there is nothing.
    """
    problem, line, other = step.problem, step.occupancy, step.before
    if other is None:
        return []
    backward = set(problem.backward)
    place = {op: p for p, op in enumerate(line.ops) if (p < line.boundary) != (op in backward)}
    found: list[tuple[int, int]] = []
    highest = 0
    for position, op in enumerate(other.ops):
        highest = max(highest, other.levels[position])
        early = position < other.boundary
        if op in place and (early or op in backward):
            found.append((place[op], highest))
            highest = 0
    return found
