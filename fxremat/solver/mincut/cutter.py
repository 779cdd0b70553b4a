"""The cheapest choice of what to save and what to recompute, as a certified minimum cut.

The network is that of :mod:`fxremat.solver.mincut.network`. The flow is found by scipy's
``maximum_flow`` (Dinic, 1970); every solve is certified by a flow and a cut of the same value,
which prove each other optimal (Ford and Fulkerson, 1956).

scipy's capacities are 32-bit integers. Let F be the sum of the finite prices and 2**(e-1) <= F <
2**e. Prices are multiplied by 2**(30-e) and rounded down, so their sum stays below 2**30, and 2**30
serves as infinity: no cut of finite prices can reach it. The resolution is therefore 2**(e-30), at
most F / 2**29 seconds: the cut found costs less than the best one plus the resolution times the
number of prices that the best one pays. The factor is a power of two, so prices that are whole
multiples of the resolution (integers of moderate size, say) are exact, and ties stay ties.

Among cuts of the same value the one nearest to the backward is taken: its recomputed ops are a
subset of those of every other one. So a tie between saving and recomputing is saved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from fxremat.base.errors import InfeasibleError
from fxremat.problem.types import Problem
from fxremat.solver.mincut.network import SINK, SOURCE, Prices, Slot, charges, slots

__all__ = ["Cut", "Cutter", "certify"]

INFINITE = 2**30  # above the sum of all finite capacities, see the module docstring

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Cut:
    """A choice of what to save and what to recompute.

    Attributes:
        saved: indices of the computed values that are saved, held ones among them. Inputs of the
            step are not listed: they exist anyway.
        recomputed: indices of the ops to be recomputed; of DEFERRABLE ops, those that run in the
            backward.
        value: sum of the prices paid, in seconds, added up from the prices as given.
        bound: what no cut is below, in seconds: the flow, at the resolution of the capacities.
    """

    saved: frozenset[int]
    recomputed: frozenset[int]
    value: float
    bound: float


class Cutter:
    """Cuts one problem at many prices; the network is laid out once.

    Raises:
        InfeasibleError: if some value may be neither saved nor recomputed, at whatever price.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        arcs = slots(problem)
        self._never = len(problem.ops) + len(problem.values) + 1
        self._tails = np.array([s.tail for s in arcs], dtype=np.int64)
        self._heads = np.array([s.head for s in arcs], dtype=np.int64)
        self._charge = np.array([s.charge for s in arcs], dtype=np.int64)
        self._priced = self._charge[self._charge < self._never]
        self._lay_out()
        self._require_feasible(arcs)

    def _lay_out(self) -> None:
        """Store the arcs and their reverses as one CSR pattern, rows and columns sorted.

        scipy adds the reverses itself and returns the flow on the same pattern, so an array over
        the pattern can be read without a look-up.
        """
        count, size = len(self._tails), 2 + len(self.problem.ops) + len(self.problem.values)
        rows = np.concatenate((self._tails, self._heads))
        columns = np.concatenate((self._heads, self._tails))
        order = np.lexsort((columns, rows))
        place = np.empty_like(order)
        place[order] = np.arange(2 * count)
        self._size = size
        self._forth, self._back = place[:count], place[count:]
        self._indices = columns[order].astype(np.int32)
        starts = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=size))))
        self._indptr = starts.astype(np.int32)

    def _require_feasible(self, arcs: tuple[Slot, ...]) -> None:
        """Look for a path of infinite arcs, breadth first from the sink, so a shortest is shown."""
        infinite = self._charge == self._never
        against = (self._heads[infinite], self._tails[infinite])
        graph = csr_array((np.ones(len(against[0])), against), shape=(self._size, self._size))
        _, towards = breadth_first_order(graph, SINK)
        if towards[SOURCE] < 0:
            return
        reasons = {(a.tail, a.head): a.reason for a in arcs}
        path = [SOURCE]
        while path[-1] != SINK:
            path.append(int(towards[path[-1]]))
        steps = tuple(reasons[arc] for arc in pairwise(path))[::-1]
        name = self.problem.values[path[-2] - 2 - len(self.problem.ops)].name
        raise InfeasibleError(
            f"the backward needs {name}, but the rules leave no way to keep or rebuild it: "
            f"{'; '.join(steps)}. Relax a rule or a pin on this path",
            steps,
        )

    def cut(self, prices: Prices) -> Cut:
        """The cheapest cut at these prices.

        Raises:
            ValueError: if the prices do not fit the problem.
        """
        costs = charges(self.problem, prices)
        capacity, exponent = self._integers(costs)
        flow, needed = self._solve(capacity)
        certify(self._tails, self._heads, capacity, flow, needed)
        flowing = int(flow[self._heads == SINK].sum())
        return self._decode(costs, needed, math.ldexp(flowing, exponent - 30))

    def _integers(self, costs: NDArray[np.float64]) -> tuple[Ints, int]:
        """Capacities of the arcs in units of the resolution, which is 2**(exponent - 30)."""
        # fsum rounds correctly, so a total that it puts below 2**exponent is below it.
        exponent = math.frexp(math.fsum(costs[self._priced].tolist()))[1]
        scaled = np.floor(np.ldexp(costs[self._charge], 30 - exponent))
        return np.minimum(scaled, INFINITE).astype(np.int64), exponent

    def _solve(self, capacity: Ints) -> tuple[Ints, Flags]:
        data = np.zeros(len(self._indices), dtype=np.int32)
        data[self._forth] = capacity
        shape = (self._size, self._size)
        graph = csr_array((data, self._indices, self._indptr), shape=shape)
        pushed = maximum_flow(graph, SOURCE, SINK).flow.data
        # Only what can still reach the sink is needed: search from it against the arcs left open.
        # The arc that enters a node against pattern entry i is the entry of its reverse.
        left = data - pushed
        against = np.empty_like(left)
        against[self._forth], against[self._back] = left[self._back], left[self._forth]
        is_open = against > 0
        ends = np.concatenate(([0], np.cumsum(is_open)))[self._indptr].astype(np.int32)
        ones = np.ones(int(ends[-1]), dtype=np.float64)
        residual = csr_array((ones, self._indices[is_open], ends), shape=shape)
        reached = breadth_first_order(residual, SINK, return_predecessors=False)
        needed = np.zeros(self._size, dtype=np.bool_)
        needed[reached] = True
        return pushed[self._forth].astype(np.int64), needed

    def _decode(self, costs: NDArray[np.float64], needed: Flags, bound: float) -> Cut:
        paid = ~needed[self._tails] & needed[self._heads]
        charge = self._charge[paid]
        count, free = len(self.problem.ops), self._never - 1
        recomputed = frozenset(charge[charge < count].tolist())
        # The arcs that end in a value and are paid for, other than those of inputs, save it.
        saving = paid & (self._tails != SOURCE) & (self._charge >= count)
        saved = self._heads[saving] - 2 - count
        value = math.fsum(costs[charge[charge < free]].tolist())
        return Cut(frozenset(saved.tolist()), recomputed, value, bound)


def certify(tails: Ints, heads: Ints, capacity: Ints, flow: Ints, sink_side: Flags) -> None:
    """Prove a flow and a cut optimal: both are legal, and their values are the same integer.

    Args:
        tails: node number of each arc's tail; the source is 0, the sink 1.
        heads: node number of each arc's head.
        capacity: of each arc, in integers.
        flow: on each arc, in integers.
        sink_side: for each node whether it lies on the sink side of the cut.

    Raises:
        AssertionError: if the proof fails, which is a mistake of ours or of the solver.
    """
    if sink_side[SOURCE] or not sink_side[SINK]:
        raise AssertionError("the cut does not separate source and sink")
    if ((flow < 0) | (flow > capacity)).any():
        raise AssertionError("the flow on some arc is negative or exceeds its capacity")
    count = len(sink_side)
    # Exact: bincount adds in double precision, and the sums stay far below 2**53.
    excess = np.bincount(heads, flow, count) - np.bincount(tails, flow, count)
    value = int(excess[SINK])
    if value != -int(excess[SOURCE]) or excess[2:].any():
        raise AssertionError("the flow is not conserved in some node")
    cut = int(capacity[~sink_side[tails] & sink_side[heads]].sum())
    if cut != value:
        raise AssertionError(f"flow {value} and cut {cut} differ, so the cut is not minimum")
