"""Budgets for parts of a graph: what a region's values hold between forward and backward.

A region is what ``fxremat.region`` or ``torch.autograd.graph.region_activation_memory_budget``
encloses in the model, or the modules that a pattern of the backend's ``regions`` names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import fx

from fxremat.base.budget import Budget, resolve
from fxremat.base.errors import BudgetError
from fxremat.base.units import format_bytes
from fxremat.constraints.user import REGION, matches, module_paths
from fxremat.problem.types import Phase, Problem
from fxremat.solver.mincut.holding import hold_at_most, saved_bytes
from fxremat.solver.seeds.cuts import baseline
from passes import torch_internals
from passes.analysis.joint import JointGraph

__all__ = ["Region", "regions_of", "within"]


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
        mark = _mark(node)
        if not made:
            continue
        if mark is not None:
            name, budget = mark
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


def _mark(node: fx.Node) -> tuple[str, Budget] | None:
    """Name and budget of the region that the model says a node is in; None where it says none."""
    said = node.meta.get("custom", {})
    if REGION in said:
        name, _, text = str(said[REGION]).rpartition("\n")
        return name, Budget() if text == "None" else Budget.parse(text)
    share = said.get(torch_internals.MEMORY_BUDGET)
    if share is None:
        return None
    # torch's own way to say it: 0 is what checkpointing the whole region would hold.
    budget = Budget(fraction=float(share)) if share > 0 else Budget(smallest=True)
    return f"region_activation_memory_budget({share})", budget


def within(problem: Problem, regions: list[Region]) -> Problem:
    """A problem in which values that a region has no room for may not be saved.

    Raises:
        BudgetError: if a region holds more than its budget whatever is recomputed.
    """
    for region in regions:
        problem = _within(problem, region)
    return problem


def _within(problem: Problem, region: Region) -> Problem:
    inside = {i for i, value in enumerate(problem.values) if value.name in region.values}
    held = saved_bytes(problem, baseline(problem), inside)
    limit = 0 if region.budget.smallest else resolve(region.budget, held).nbytes
    if limit is None or held <= limit:
        return problem
    why = f"the budget of the region {region.name!r} has no room for it"
    narrowed, least = hold_at_most(problem, inside, limit, why)
    if least > limit and not region.budget.smallest:
        raise BudgetError(
            f"the region {region.name!r} holds {least} bytes ({format_bytes(least)}) between "
            f"forward and backward at least, above its budget of {limit} bytes; give it that "
            "much, or let more of it be recomputed",
            asked=limit,
            least=least,
        )
    return narrowed
