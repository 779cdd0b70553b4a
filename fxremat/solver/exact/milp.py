"""Mixed-integer linear programs, built row by row and solved by HiGHS through scipy."""

from __future__ import annotations

import ctypes
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array, hstack

__all__ = ["ONE", "ZERO", "Linear", "Model", "Solved", "total"]

Floats = NDArray[np.float64]
ROW = 1e3  # largest coefficient of a row of bytes after scaling
GAP = 2e-6  # the solver's absolute gap, and a little
SLACK = 1e-6  # share of the largest coefficient by which rows of bytes are loosened


@dataclass(frozen=True, slots=True)
class Linear:
    """A constant plus multiples of variables, which go by index."""

    const: float = 0.0
    terms: tuple[tuple[int, float], ...] = ()

    def __add__(self, other: Linear) -> Linear:
        return total((self, other))

    def __sub__(self, other: Linear) -> Linear:
        return total((self, other * -1.0))

    def __mul__(self, factor: float) -> Linear:
        return Linear(self.const * factor, tuple((i, c * factor) for i, c in self.terms))

    def at(self, x: Floats) -> float:
        """The value at a point."""
        return self.const + math.fsum(c * float(x[i]) for i, c in self.terms)

    @property
    def is_zero(self) -> bool:
        """Whether this is the constant 0."""
        return not self.terms and self.const == 0.0


ZERO, ONE = Linear(), Linear(1.0)


def total(parts: Iterable[Linear]) -> Linear:
    """The sum of linear expressions."""
    const = 0.0
    terms: dict[int, float] = {}
    for part in parts:
        const += part.const
        for index, factor in part.terms:
            terms[index] = terms.get(index, 0.0) + factor
    return Linear(const, tuple((i, c) for i, c in terms.items() if c != 0.0))


@dataclass(frozen=True, slots=True)
class Solved:
    """What one call of the solver says.

    Attributes:
        x: the best point found, integers rounded, or None.
        bound: the objective is at least this; infinite if the program is infeasible.
        closed: the point is optimal, or infeasibility is proved.
    """

    x: Floats | None
    bound: float
    closed: bool


class Model:
    """A program in variables between 0 and 1, to be minimized."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.whole: list[int] = []
        self.constant = 0.0
        self.impossible = False
        self._defined: list[tuple[int, list[Linear]]] = []
        self._index: list[int] = []
        self._data: list[float] = []
        self._ends: list[int] = [0]
        self._rhs: list[float] = []

    def binary(self) -> Linear:
        """A new variable that is 0 or 1."""
        return self._new(1)

    def share(self) -> Linear:
        """A new variable between 0 and 1."""
        return self._new(0)

    def _new(self, whole: int) -> Linear:
        self.cost.append(0.0)
        self.whole.append(whole)
        return Linear(0.0, ((len(self.cost) - 1, 1.0),))

    def charge(self, expression: Linear) -> None:
        """Add an expression to the objective."""
        self.constant += expression.const
        for index, factor in expression.terms:
            self.cost[index] += factor

    def at_most(self, expression: Linear, bound: float) -> None:
        """Demand that an expression is at most a number."""
        room = bound - expression.const
        if sum(c for _, c in expression.terms if c > 0) <= room:
            return
        if sum(c for _, c in expression.terms if c < 0) > room + 1e-9:
            self.impossible = True
        self._index += [i for i, _ in expression.terms]
        self._data += [c for _, c in expression.terms]
        self._ends.append(len(self._index))
        self._rhs.append(room)

    def at_least(self, expression: Linear, bound: Linear) -> None:
        """Demand that an expression is at least another."""
        self.at_most(bound - expression, 0.0)

    def memory(self, bytes_: Linear, limit: int) -> None:
        """Demand that whole bytes stay within a limit, where all variables are 0 or 1.

        The row is divided by the greatest common divisor of its coefficients, scaled, and loosened
        by less than one unit, so that no integral solution is lost to rounding.
        """
        room = limit - round(bytes_.const)
        units = [round(abs(c)) for _, c in bytes_.terms]
        most = max(units, default=0)
        if not most:
            self.impossible = self.impossible or room < 0
            return
        unit = math.gcd(*units)
        right = (room // unit) * unit + min(0.5 * unit, SLACK * most)
        scale = min(1.0, ROW / most)
        terms = tuple((i, c * scale) for i, c in bytes_.terms)
        self.at_most(Linear(0.0, terms), right * scale)

    def most(self, parts: Iterable[Linear]) -> Linear:
        """An expression, at least each of the given ones and at least 0, none being above 1."""
        found = [
            e for e in dict.fromkeys(parts) if e.const + sum(c for _, c in e.terms if c > 0) > 0
        ]
        if any(not e.terms and e.const >= 1 for e in found):
            return ONE
        if not found:
            return ZERO
        if len(found) == 1 and found[0].const + sum(c for _, c in found[0].terms if c < 0) >= 0:
            return found[0]
        share = self.share()
        self._defined.append((share.terms[0][0], found))
        for e in found:
            self.at_least(share, e)
        return share

    def rounded(self, x: Floats) -> Floats:
        """A point with its integers rounded and every :meth:`most` at its least."""
        point = np.rint(x)
        for index, found in self._defined:
            point[index] = max(0.0, *(e.at(point) for e in found))
        return point

    def cover(self, bytes_: Linear, limit: int, x: Floats) -> None:
        """Cut off the rounded point ``x``, which exceeds a limit, by a minimal cover of its row.

        Raises:
            ValueError: if it does not exceed the limit.
        """
        over = bytes_.at(x) - limit
        if over <= 0:
            raise ValueError(f"the row allows this point by {-over} bytes")
        literals = sorted(
            ((abs(c), i, c > 0) for i, c in bytes_.terms if (round(x[i]) == 1) == (c > 0)),
        )
        chosen = []
        for size, index, positive in literals:
            if size < over:
                over -= size
            else:
                chosen.append((index, positive))
        terms = tuple((i, 1.0 if positive else -1.0) for i, positive in chosen)
        self.at_most(Linear(0.0, terms), sum(positive for _, positive in chosen) - 1.0)

    def solve(self, seconds: float, gap: float, cutoff: float, nodes: int | None = None) -> Solved:
        """Minimize, within seconds and to a relative gap, where the objective is below a cutoff.

        A limit on the nodes of the branch and bound stops at the same place on every machine.

        With a finite cutoff one more variable says whether there is such a point; without, all
        variables are 0 at the price of the cutoff. So there is a feasible point from the start, and
        the solver reports its bound even if it runs out of time.
        """
        if self.impossible:
            return Solved(None, math.inf, closed=True)
        finite = cutoff < math.inf
        price = max(cutoff - self.constant, 0.0) if finite else 0.0
        deadline = time.monotonic() + seconds
        count = len(self.cost)
        least = np.zeros(count + 1)
        least[-1] = not finite
        cost = np.array([*self.cost, -price])
        program = {
            "c": cost,
            "bounds": Bounds(least, np.ones(count + 1)),
            "constraints": self._rows(),
        }
        options = {"time_limit": seconds, "mip_rel_gap": gap}
        if nodes is not None:
            options["node_limit"] = nodes
        with _silent():
            found = milp(**program, integrality=np.array([*self.whole, 1]), options=options)
        if found.status == 2:
            return Solved(None, math.inf, closed=True)
        if found.x is None:
            left = max(deadline - time.monotonic(), 1.0)
            with _silent():
                found = milp(**program, options={"time_limit": left})
            bound = -math.inf if found.x is None else float(found.fun)
            return Solved(None, bound + price + self.constant, closed=False)
        bound = float(found.mip_dual_bound)
        closed = found.status == 0 and float(found.fun) - bound <= GAP
        if found.x[-1] < 0.5:
            found_bound = math.inf if closed else bound + price + self.constant
            return Solved(None, found_bound, closed)
        return Solved(self.rounded(found.x), bound + price + self.constant, closed)

    def _rows(self) -> LinearConstraint:
        count = len(self.cost)
        right = np.array(self._rhs)
        least = np.minimum(right, 0.0)[:, None]
        data, ends = np.array(self._data), np.array(self._ends, dtype=np.int32)
        index = np.array(self._index, dtype=np.int32)
        matrix = csr_array((data, index, ends), shape=(len(right), count))
        whole = hstack([matrix, csr_array(-least)], format="csr")
        return LinearConstraint(whole, -np.inf, np.maximum(right, 0.0))


@contextmanager
def _silent() -> Iterator[None]:
    """Without the lines for developers that HiGHS prints to stdout past Python and its options."""
    if os.name != "posix":
        yield
        return
    libc = ctypes.CDLL(None)
    if sys.stdout is not None:
        sys.stdout.flush()
    libc.fflush(None)
    try:
        kept = os.dup(1)
    except OSError:  # stdout is closed
        yield
        return
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), 1)
    try:
        yield
    finally:
        libc.fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
