"""Budgets for parts of a graph: what a region's values hold between forward and backward.

A region is what ``fxremat.region`` encloses in the model, or the modules that a pattern of the
backend's ``regions`` names. The cheapest choice within its budget is a minimum cut in which the
region's bytes have a price, and that price rises until the region holds no more than it may. What
the cut does not save may not be saved by the plan either.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from passes.joint import JointGraph, Side

from .budget import Budget, format_bytes
from .errors import BudgetError
from .mincut import Cutter
from .network import Prices
from .pins import REGION, module_paths
from .problem import Kind, Phase, Problem
from .solvers.starts import baseline
from .timeline import replay

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
        if joint.sides[node.name] not in (Side.FORWARD, Side.EITHER):
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
            if any(fnmatchcase(path, pattern) for path in module_paths(node)):
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
        if value.name in region.values and value.kind is Kind.COMPUTED and not value.held
    }
    line = replay(problem, baseline(problem))
    held = sum(problem.values[v].nbytes for v in line.saved if v in inside)
    limit = 0 if region.budget.smallest else region.budget.limit(held)
    if limit is None or held <= limit:
        return problem
    saved = _cheapest(problem, inside, limit)
    if saved is None:
        least = _bytes(problem, _cut(problem, inside, 1.0), inside)
        if not region.budget.smallest:
            raise BudgetError(
                f"the region {region.name!r} holds {least} bytes ({format_bytes(least)}) between "
                f"forward and backward at least, above its budget of {limit} bytes; give it that "
                "much, or let more of it be recomputed",
                asked=limit,
                least=least,
            )
        saved = _cut(problem, inside, 1.0)
    why = f"the budget of the region {region.name!r} has no room for it"
    values = tuple(
        replace(v, unsaveable=v.unsaveable or why) if i in inside and i not in saved else v
        for i, v in enumerate(problem.values)
    )
    return replace(problem, values=values)


def _cheapest(problem: Problem, inside: set[int], limit: int) -> frozenset[int] | None:
    """What to save at the lowest price of bytes at which the region is within its limit."""
    saved = _cut(problem, inside, 1.0)
    if _bytes(problem, saved, inside) > limit:
        return None
    low, high = 0.0, 1.0
    more: frozenset[int] = frozenset()
    for _ in range(STEPS):
        middle = (low + high) / 2
        found = _cut(problem, inside, middle)
        if _bytes(problem, found, inside) <= limit:
            high, saved = middle, found
        else:
            low, more = middle, found
    chosen = set(saved)
    room = limit - _bytes(problem, saved, inside)
    for v in sorted((more & inside) - saved):  # values that are worth the same go at one price
        if problem.values[v].nbytes <= room:
            chosen.add(v)
            room -= problem.values[v].nbytes
    return frozenset(chosen)


def _cut(problem: Problem, inside: set[int], share: float) -> frozenset[int]:
    """The cut at a share of the price at which no byte of the region is worth saving."""
    whole = sum(op.seconds for op in problem.ops) + 1e-9
    price = 2 * whole * share**4  # so that halving the share finds small prices too
    recompute = [
        0.0 if op.phase is Phase.EITHER and i in problem.needed else op.seconds
        for i, op in enumerate(problem.ops)
    ]
    outside = 1e-9 * whole / (1 + sum(v.nbytes for v in problem.values))
    save = [
        (price if i in inside else outside) * value.nbytes for i, value in enumerate(problem.values)
    ]
    return Cutter(problem).cut(Prices(tuple(recompute), tuple(save))).saved


def _bytes(problem: Problem, saved: frozenset[int], inside: set[int]) -> int:
    return sum(problem.values[v].nbytes for v in saved if v in inside)
