"""What people do by hand, as schedules of the same problem: to use, and to compare with.

==================  ==============================================================================
strategy            what it saves
==================  ==============================================================================
``none``            everything
``full``            what goes into each block; a block runs again as a whole when it is needed
``every``           the same for stretches of ``k`` blocks
``sqrt``            the same with ``k`` near the square root of the number of blocks (Chen et al.
                    2016, "Training Deep Nets with Sublinear Memory Cost")
``selective``       results of matrix products and convolutions; the rest is recomputed (Korthikanti
                    et al. 2022 do so for attention; as a policy: torchtitan, PyTorch's
                    selective checkpointing)
==================  ==============================================================================

Blocks are found from module paths: the members of the list or sequence of modules that does most
of the work, such as ``layers.0``, ``layers.1``.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import get_args

from fxremat.base.errors import OptionError
from fxremat.options import ByHand
from fxremat.problem.context import Context
from fxremat.problem.types import Kind, Phase, Problem
from fxremat.solver.pareto import Point
from fxremat.solver.seeds.cuts import baseline, just_in_time

__all__ = ["COMPARED", "NAMES", "blocks", "strategy"]

COMPARED = {
    "none": ("none", 1),
    "full": ("full", 1),
    "every 2": ("every", 2),
    "sqrt": ("sqrt", 1),
    "selective": ("selective", 1),
}
NAMES = get_args(ByHand)
_KEPT = re.compile(
    r"aten\.(mm|bmm|addmm|baddbmm|convolution|_scaled_dot_product\w*|linear|matmul|_scaled_mm|"
    r"_scaled_grouped_mm|_grouped_mm|_flash_attention_forward|_efficient_attention_forward)\b"
)


def strategy(context: Context, name: str, k: int = 1) -> Point:
    """The schedule of a strategy.

    Args:
        context: the problem, with the modules that its ops come from.
        name: one of :data:`NAMES`.
        k: for ``every``, how many blocks make one stretch, at least 1.

    Raises:
        OptionError: for an unknown name, or where no blocks are found.
    """
    problem = context.problem
    if name not in NAMES:
        raise OptionError(f"strategy={name!r}: not one of {', '.join(map(repr, NAMES))}")
    if name == "none":
        return Point.of(problem, baseline(problem))
    if name == "selective":
        dropped = _dropped_by_op(context)
    else:
        found = blocks(context)
        if not found:
            raise OptionError(
                f"strategy={name!r}: no blocks were found; it needs a list of modules in "
                "the model, such as nn.ModuleList or nn.Sequential, where most of the work is done"
            )
        many = max(found.values()) + 1
        size = {"full": 1, "sqrt": max(1, round(math.sqrt(many)))}.get(name, k)
        dropped = _dropped_by_block(problem, found, size)
    return Point.of(problem, _schedule(problem, dropped))


def blocks(context: Context) -> dict[int, int]:
    """The number of the block that each forward op belongs to; ops outside of blocks are left out.

    Of all lists of modules the one whose members do most of the work is taken; of those that do
    the same, the one with most members.
    """
    problem = context.problem
    work: Counter[str] = Counter()
    members: dict[str, set[int]] = {}
    for index in problem.forward:
        op = problem.ops[index]
        if op.phase is not Phase.FORWARD:
            continue
        for parent, number in _lists(context.origin(op.name).module):
            work[parent] += round(op.seconds * 1e12)
            members.setdefault(parent, set()).add(number)
    several = {parent: n for parent, n in work.items() if len(members[parent]) > 1}
    if not several:
        return {}
    chosen = max(several, key=lambda p: (several[p], len(members[p]), -len(p), p))
    order = {number: place for place, number in enumerate(sorted(members[chosen]))}
    found: dict[int, int] = {}
    for index in problem.forward:
        for parent, number in _lists(context.origin(problem.ops[index].name).module):
            if parent == chosen:
                found[index] = order[number]
    return found


def _lists(path: str) -> list[tuple[str, int]]:
    """The lists that a module path goes through: path of the list, place in it."""
    parts = path.split(".")
    return [(".".join(parts[:i]), int(p)) for i, p in enumerate(parts) if p.isdigit()]


def _dropped_by_op(context: Context) -> set[int]:
    """Values of ops that are not worth keeping."""
    problem = context.problem
    return {
        value
        for op in problem.ops
        if op.phase is Phase.FORWARD and not _KEPT.match(context.origin(op.name).op)
        for value in op.outputs
    }


def _dropped_by_block(problem: Problem, found: dict[int, int], size: int) -> set[int]:
    """Values made within a stretch of blocks and read, in the forward, only there."""
    stretch = {op: number // size for op, number in found.items()}
    inside = {value for index in stretch for value in problem.ops[index].outputs}
    for index in problem.forward:
        if problem.ops[index].phase is Phase.FORWARD:
            read = problem.ops[index].inputs
            mine = stretch.get(index)
            inside -= {v for v in read if stretch.get(problem.producer[v]) != mine}
    return inside


def _schedule(problem: Problem, dropped: set[int]) -> list[int]:
    """Everything dropped is rebuilt once, right before its first use, from what is kept.

    What may not run again keeps its results, and what may not be saved is rebuilt.
    """
    kept: set[int] = set()
    for value, known in enumerate(problem.values):
        op = problem.producer[value]
        if op < 0 or known.kind is not Kind.COMPUTED:
            continue
        if problem.ops[op].phase is not Phase.FORWARD:
            continue
        if (
            problem.ops[op].fixed
            or (value not in dropped and not known.unsaveable)
            or known.is_output
        ):
            kept.add(value)
    return just_in_time(problem, kept)
