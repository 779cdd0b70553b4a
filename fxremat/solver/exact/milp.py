"""Mixed-integer linear programs, built row by row and solved by HiGHS."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import highspy
import numpy as np
from highspy import HighsModelStatus, HighsVarType, MatrixFormat
from numpy.typing import NDArray

__all__ = ["ONE", "ZERO", "Linear", "Model", "Solution", "total"]

Floats = NDArray[np.float64]
LARGEST = 1e3  # largest coefficient of a row of bytes after scaling
CLOSED = 2e-6  # HiGHS's absolute gap, and a little
SLACK = 1e-6  # share of the largest coefficient by which rows of bytes are loosened


class _Highs(highspy.Highs):
    """HiGHS without its log."""

    def enableCallbacks(self) -> None:
        """Called by the constructor; registering callbacks would already print a banner."""
        self.silent()


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
class Solution:
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
        self.whole: list[bool] = []
        self.constant = 0.0
        self._defined: list[tuple[int, list[Linear]]] = []
        self._index: list[int] = []  # of the variables of all rows, one row after the other
        self._factors: list[float] = []
        self._starts: list[int] = [0]
        self._most: list[float] = []

    def binary(self) -> Linear:
        """A new variable that is 0 or 1."""
        return self.share(whole=True)

    def share(self, *, whole: bool = False) -> Linear:
        """A new variable between 0 and 1."""
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
        self._index += [i for i, _ in expression.terms]
        self._factors += [c for _, c in expression.terms]
        self._starts.append(len(self._index))
        self._most.append(room)

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
        most = max(units, default=1)
        unit = math.gcd(*units) or 1
        right = (room // unit) * unit + min(0.5 * unit, SLACK * most)
        scale = min(1.0, LARGEST / most)
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

    def solve(
        self, seconds: float, gap: float, cutoff: float, nodes: int | None = None
    ) -> Solution:
        """Minimize, within seconds and to a relative gap, where the objective is below a cutoff.

        A limit on the nodes of the branch and bound stops at the same place on every machine.
        """
        if not any(self.whole):
            self.binary()  # else HiGHS would solve a linear program, which reports otherwise
        highs = _Highs()  # type: ignore[no-untyped-call]
        highs.setOptionValue("parallel", "off")  # one program, one solution on every machine
        highs.setOptionValue("time_limit", seconds)
        highs.setOptionValue("mip_rel_gap", gap)
        highs.setOptionValue("objective_bound", cutoff)
        if nodes is not None:
            highs.setOptionValue("mip_max_nodes", nodes)
        highs.passModel(self._program())
        highs.run()
        status, info = highs.getModelStatus(), highs.getInfo()
        if status == HighsModelStatus.kInfeasible:
            return Solution(None, math.inf, closed=True)
        solution = highs.getSolution()
        if not solution.value_valid:
            return Solution(None, info.mip_dual_bound, closed=False)
        reached = info.objective_function_value - info.mip_dual_bound <= CLOSED
        closed = status == HighsModelStatus.kOptimal and reached
        return Solution(self.rounded(np.array(solution.col_value)), info.mip_dual_bound, closed)

    def _program(self) -> highspy.HighsLp:
        program = highspy.HighsLp()
        columns, rows = len(self.cost), len(self._most)
        program.num_col_, program.num_row_ = columns, rows
        program.offset_, program.col_cost_ = self.constant, np.array(self.cost)
        program.col_lower_, program.col_upper_ = np.zeros(columns), np.ones(columns)
        program.row_lower_ = np.full(rows, -highspy.kHighsInf)
        program.row_upper_ = np.array(self._most)
        program.integrality_ = [
            HighsVarType.kInteger if whole else HighsVarType.kContinuous for whole in self.whole
        ]
        matrix = program.a_matrix_
        matrix.format_ = MatrixFormat.kRowwise
        matrix.start_, matrix.index_ = np.array(self._starts), np.array(self._index)
        matrix.value_ = np.array(self._factors)
        return program
