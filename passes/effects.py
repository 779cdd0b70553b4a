"""Which calls must happen exactly as often as the program says: draws, writes, effects."""

from __future__ import annotations

import torch
from torch import fx

from .private import OpOverload, impure

__all__ = ["draws", "happens_once", "keeps_input"]


def draws(node: fx.Node) -> bool:
    """Whether a call draws random numbers.

    Fused attention is tagged as if it did, but without dropout it draws none.
    """
    target = node.target
    if not isinstance(target, OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    for index, argument in enumerate(target._schema.arguments):
        if argument.name == "dropout_p":
            named = node.kwargs.get("dropout_p", 0.0)
            return bool((node.args[index] if index < len(node.args) else named) != 0)
    return True


def happens_once(node: fx.Node) -> bool:
    """Whether a call draws, writes to an argument or has another effect beyond its result."""
    if node.op != "call_function":
        return False
    target = node.target
    tagged = isinstance(target, OpOverload) and torch.Tag.nondeterministic_seeded in target.tags
    return draws(node) if tagged else impure(node)


def keeps_input(node: fx.Node) -> bool:
    """Whether a node may keep an input that AOTAutograd overwrites after the forward has returned.

    Such a write is not in the graph; all that shows is the clone of the input that it is kept in.
    """
    source = node.args[0] if node.args else None
    if node.target is not torch.ops.aten.clone.default or not isinstance(source, fx.Node):
        return False
    return source.op == "placeholder"
