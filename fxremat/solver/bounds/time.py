"""A lower bound on the recompute time of every plan within a limit.

At each moment of the backward (:mod:`fxremat.solver.bounds.closure`) the bytes of what is live must
leave room for the op that runs: one constraint on a closure problem whose cost is the time of the
ops that run again later. Moving the constraint into the objective at a price per byte leaves a
minimum cut, and the best price is found by intersecting the lines of the cuts on both sides of the
room (the concave dual, by Newton's method; Everett 1963, Dinkelbach 1967). By weak duality its
value at any price is a bound; the largest over prices and moments is taken.

An op counts once, however often it runs, and one moment at a time. So the bound is close where
plans recompute once, and loose where they must recompute several times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fxremat.problem.types import Problem
from fxremat.solver.bounds.closure import BOUNDARY, Moment, moment
from fxremat.solver.flat import Table
from fxremat.solver.mincut.network import Prices

__all__ = ["Dual", "TimeBound"]

STEPS = 20  # of the search for the best price; it ends by itself after 4 to 8
DEAREST = 1e6  # how much dearer memory is than time where only bytes matter
MOMENTS = 5  # of each kind that are looked at


@dataclass(frozen=True, slots=True)
class Dual:
    """The bound that one moment gives.

    Attributes:
        seconds: the bound; infinity if no plan keeps the limit.
        price: seconds per byte at which it is reached.
        moment: the moment, or None where even the plan that recomputes nothing keeps the limit.
    """

    seconds: float
    price: float = 0.0
    moment: Moment | None = None


class TimeBound:
    """Bounds for any number of limits on the peak of one problem.

    The moments looked at are the end of the forward and those of the backward at which most is
    live if nothing is recomputed, if everything is, and halfway.

    Args:
        problem: the problem.
        table: the problem laid out.
        live: bytes that are live while each backward op runs if nothing is recomputed.
    """

    def __init__(self, problem: Problem, table: Table, live: Sequence[int]) -> None:
        self.problem = problem
        self.table = table
        self._moments = [BOUNDARY, *_moments(table, live)]
        self._laid_out: dict[int, Moment] = {}
        self._found: dict[int, Dual] = {}

    def at(self, limit: int) -> Dual:
        """The best bound on the recompute time of plans whose peak is within a limit (bytes)."""
        if limit not in self._found:
            duals = (_dual(self.problem, self._moment(k), limit) for k in self._moments)
            self._found[limit] = max(duals, key=lambda d: d.seconds)
        return self._found[limit]

    def _moment(self, index: int) -> Moment:
        if index not in self._laid_out:
            self._laid_out[index] = moment(self.problem, self.table, index)
        return self._laid_out[index]


def _moments(table: Table, live: Sequence[int]) -> list[int]:
    chosen: dict[int, None] = {}
    for weight in (1.0, 0.5, 0.0):
        score = [weight * a + (1 - weight) * b for a, b in zip(live, table.local, strict=True)]
        ranked = sorted(range(len(score)), key=lambda k: -score[k])
        chosen.update(dict.fromkeys(ranked[:MOMENTS]))
    return list(chosen)


def _dual(problem: Problem, at: Moment, limit: int) -> Dual:
    room = limit - at.base
    if room < 0:
        return Dual(math.inf, 0.0, at)
    seconds = [0.0 if o in problem.required else problem.ops[o].seconds for o in at.ops]
    total, size = sum(seconds), sum(at.nbytes)
    if size <= room:
        return Dual(0.0)

    def cut(price: float) -> tuple[float, float, int]:
        found = at.cutter.cut(
            Prices((*seconds, 0.0), tuple(price * nbytes for nbytes in at.nbytes))
        )
        time = math.fsum(seconds[o] for o in found.recomputed)
        return found.bound - price * room, time, sum(at.nbytes[v] for v in found.saved)

    unit = (total or 1.0) / size
    _, low_time, low_bytes = cut(unit / DEAREST)
    if low_bytes <= room:
        return Dual(0.0)
    _, high_time, high_bytes = cut(unit * DEAREST)
    if high_bytes > room:
        return Dual(math.inf, 0.0, at)
    best = Dual(0.0)
    for _ in range(STEPS):
        if low_bytes <= high_bytes or high_time <= low_time:
            break
        price = (high_time - low_time) / (low_bytes - high_bytes)
        value, time, nbytes = cut(price)
        if value > best.seconds:
            best = Dual(value, price, at)
        if (time, nbytes) in ((low_time, low_bytes), (high_time, high_bytes)):
            break
        if nbytes > room:
            low_time, low_bytes = time, nbytes
        else:
            high_time, high_bytes = time, nbytes
    return best
