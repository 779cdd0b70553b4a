"""A limit on what some values hold between forward and backward.

The cheapest choice within such a limit is a minimum cut in which the bytes of these values have a
price, and that price rises until they hold no more than they may. What the cut does not save may
not be saved by a plan either.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from fxremat.problem.replay import replay
from fxremat.problem.types import Kind, Phase, Problem
from fxremat.solver.mincut.cutter import Cutter
from fxremat.solver.mincut.network import Prices

__all__ = ["hold_at_most", "saved_bytes"]

HALVINGS = 40  # of the price


def saved_bytes(problem: Problem, schedule: Sequence[int], inside: Collection[int]) -> int:
    """Bytes of some values, given by index, that a schedule saves and the step would not hold."""
    saved = replay(problem, schedule).saved
    return sum(problem.values[v].nbytes for v in saved if v in inside)


def hold_at_most(
    problem: Problem, inside: Collection[int], limit: int, why: str
) -> tuple[Problem, int]:
    """A problem in which some values may be saved only as far as a limit has room for them.

    Args:
        problem: the problem.
        inside: indices of the values that the limit is for.
        limit: bytes that these may hold between forward and backward.
        why: the reason for which the others of them may not be saved.

    Returns:
        The problem, and the bytes that these values hold at least; if that is above the limit, the
        problem lets them hold so much.
    """
    counted = {
        i
        for i in inside
        if problem.values[i].kind is Kind.COMPUTED and not problem.values[i].is_output
    }
    cuts = _Cuts(problem, counted)
    saved = cuts.at(1.0)
    least = cuts.nbytes(saved)
    if least <= limit:
        saved = cuts.cheapest(saved, limit)
    values = tuple(
        replace(v, unsaveable=v.unsaveable or why) if i in counted and i not in saved else v
        for i, v in enumerate(problem.values)
    )
    return replace(problem, values=values), least


class _Cuts:
    """Cuts of a problem at prices for the bytes of some values; all others cost next to nothing."""

    def __init__(self, problem: Problem, inside: set[int]) -> None:
        self.problem, self.inside = problem, inside
        self._cutter = Cutter(problem)
        self._whole = sum(op.seconds for op in problem.ops) + 1e-9
        self._recompute = tuple(
            0.0 if op.phase is Phase.DEFERRABLE and i in problem.required else op.seconds
            for i, op in enumerate(problem.ops)
        )

    def nbytes(self, saved: frozenset[int]) -> int:
        """Bytes of the values inside that are saved."""
        return sum(self.problem.values[v].nbytes for v in saved if v in self.inside)

    def at(self, share: float) -> frozenset[int]:
        """What to save at a share of the price at which no byte is worth saving."""
        values = self.problem.values
        price = 2 * self._whole * share**4  # so that halving the share finds small prices too
        outside = 1e-9 * self._whole / (1 + sum(v.nbytes for v in values))
        save = ((price if i in self.inside else outside) * v.nbytes for i, v in enumerate(values))
        return self._cutter.cut(Prices(self._recompute, tuple(save))).saved

    def cheapest(self, saved: frozenset[int], limit: int) -> frozenset[int]:
        """What to save at the lowest price at which it is within a limit, as ``saved`` is."""
        low, high = 0.0, 1.0
        more: frozenset[int] = frozenset()
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            found = self.at(middle)
            if self.nbytes(found) <= limit:
                high, saved = middle, found
            else:
                low, more = middle, found
        chosen = set(saved)
        room = limit - self.nbytes(saved)
        for v in sorted((more & self.inside) - saved):  # what is worth the same goes at one price
            if self.problem.values[v].nbytes <= room:
                chosen.add(v)
                room -= self.problem.values[v].nbytes
        return frozenset(chosen)
