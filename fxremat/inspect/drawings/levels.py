"""What charts of memory over time show: bytes by holding, and those of the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fxremat.inspect.explain import Explainer
from fxremat.problem.liveness import Holding, Occupancy

__all__ = ["Bands", "baseline_levels", "thinned"]


@dataclass(frozen=True)
class Bands:
    """Live bytes by holding.

    Attributes:
        positions: positions of the step, ascending.
        parts: for each holding its bytes at each of these.
        workspace: bytes of workspace at each of these.
    """

    positions: tuple[int, ...]
    parts: dict[Holding, list[int]]
    workspace: tuple[int, ...]


def thinned(line: Occupancy, most: int) -> Bands:
    """The bytes at no more than so many positions: the highest of each stretch."""
    chosen = _highest(line.levels, most)
    count = len(line.levels)
    parts: dict[Holding, list[int]] = {}
    for holding in Holding:
        change = np.zeros(count + 1, dtype=np.int64)
        for one in line.intervals:
            if one.holding is holding:
                change[one.start] += one.nbytes
                change[one.end + 1] -= one.nbytes
        levels = np.cumsum(change)
        parts[holding] = [int(levels[p]) for p in chosen]
    return Bands(tuple(chosen), parts, tuple(line.workspace[p] for p in chosen))


def _highest(levels: Sequence[int], most: int) -> list[int]:
    """The first and the last position, and the highest one of each of equal stretches between."""
    if len(levels) <= most:
        return list(range(len(levels)))
    edges = np.linspace(0, len(levels), most - 1).astype(int).tolist()
    stretches = pairwise(edges)
    found = {max(range(a, b), key=lambda p: levels[p]) for a, b in stretches if b > a}
    return sorted({0, *found, len(levels) - 1})


def baseline_levels(explainer: Explainer) -> list[tuple[int, int]]:
    """What would be live without recomputing, as positions of the plan's step and bytes.

    The two run different ops. They are aligned where they run the same op of the backward; what the
    baseline runs before one counts there, with its highest level. Where the rules allow no such
    plan there is nothing.
    """
    problem, line, other = explainer.problem, explainer.occupancy, explainer.before
    if other is None:
        return []
    place = {op: p for p, op in enumerate(line.ops) if p < line.boundary}
    backward = set(problem.backward)
    place |= {op: p for p, op in enumerate(line.ops) if op in backward}
    found: list[tuple[int, int]] = []
    highest = 0
    for position, op in enumerate(other.ops):
        highest = max(highest, other.levels[position])
        early = position < other.boundary
        if op in place and (early or op in backward):
            found.append((place[op], highest))
            highest = 0
    return found
