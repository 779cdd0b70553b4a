"""Budgets for parts of a graph: what a region's values hold between forward and backward.

A region is what ``fxremat.region`` encloses in the model, or the modules that a pattern of the
backend's ``regions`` names. The cheapest choice within its budget is a minimum cut in which the
region's bytes have a price, and that price rises until the region holds no more than it may. What
the cut does not save may not be saved by the plan either.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fxremat.base.budget import Budget, format_bytes
from fxremat.base.errors import BudgetError
from fxremat.constraints.user import REGION, matches, module_paths
from fxremat.problem.replay import replay
from fxremat.problem.types import Kind, Phase, Problem
from fxremat.solver.mincut.cutter import Cutter
from fxremat.solver.mincut.network import Prices
from fxremat.solver.seeds.cuts import baseline
from passes.analysis.joint import JointGraph

__all__ = ["Region", "regions_of", "within"]

STEPS = 40  # halvings of the price


@dataclass(frozen=True)
class Region:
    """A part of a graph with a budget of its own.

    Attributes:
        name: for messages.
        budget: limit on what its values hold between forward and backward.
        values: names of its values.
    """

    name: str
    budget: Budget
    values: frozenset[str]


def regions_of(joint: JointGraph, patterns: Iterable[tuple[str, Budget]]) -> list[Region]:
    """The regions of a joint graph; a value belongs to the innermost one.

    Args:
        joint: the joint graph.
        patterns: budgets by pattern of the module path.

    Raises:
        BudgetError: if a budget in the model makes no sense, or regions of one name have several.
    """
    found: dict[str, tuple[Budget, set[str]]] = {}
    for node in joint.nodes:
        if joint.phases[node.name] not in (Phase.FORWARD, Phase.DEFERRABLE):
            continue
        made = joint.makes(node)
        mark = node.meta.get("custom", {}).get(REGION)
        if not made:
            continue
        if mark is not None:
            name, _, text = str(mark).rpartition("\n")
            budget = Budget() if text == "None" else Budget.parse(text)
            limit, values = found.setdefault(name, (budget, set()))
            if limit != budget:
                raise BudgetError(
                    f"regions of the name {name!r} share one budget, but were given {limit} and "
                    f"{budget}; give them names of their own"
                )
            values.update(made)
            continue
        for pattern, limit in patterns:
            if matches(pattern, module_paths(node)):
                found.setdefault(pattern, (limit, set()))[1].update(made)
                break
    return [Region(name, budget, frozenset(v)) for name, (budget, v) in found.items()]


def within(problem: Problem, regions: list[Region]) -> Problem:
    """A problem in which values that a region has no room for may not be saved.

    Raises:
        BudgetError: if a region holds more than its budget whatever is recomputed.
    """
    for region in regions:
        problem = _within(problem, region)
    return problem


def _within(problem: Problem, region: Region) -> Problem:
    inside = {
        index
        for index, value in enumerate(problem.values)
        if value.name in region.values and value.kind is Kind.COMPUTED and not value.is_output
    }
    line = replay(problem, baseline(problem))
    held = sum(problem.values[v].nbytes for v in line.saved if v in inside)
    limit = 0 if region.budget.smallest else region.budget.limit(held)
    if limit is None or held <= limit:
        return problem
    cuts = _Cuts(problem, inside)
    saved = cuts.at(1.0)
    least = cuts.nbytes(saved)
    if least <= limit:
        saved = cuts.cheapest(saved, limit)
    elif not region.budget.smallest:
        raise BudgetError(
            f"the region {region.name!r} holds {least} bytes ({format_bytes(least)}) between "
            f"forward and backward at least, above its budget of {limit} bytes; give it that "
            "much, or let more of it be recomputed",
            asked=limit,
            least=least,
        )
    why = f"the budget of the region {region.name!r} has no room for it"
    values = tuple(
        replace(v, unsaveable=v.unsaveable or why) if i in inside and i not in saved else v
        for i, v in enumerate(problem.values)
    )
    return replace(problem, values=values)


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
        for _ in range(STEPS):
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
