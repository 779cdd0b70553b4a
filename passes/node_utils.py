"""What a node of a graph calls, is given, overwrites and returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

__all__ = [
    "arguments_where",
    "flat_outputs",
    "is_tangent",
    "leaves",
    "mutated_arguments",
    "nodes_in",
    "packet",
    "tensors_in",
]


def packet(node: fx.Node) -> Any:
    """What a node calls, whichever overload of it: ``aten.add`` for ``aten.add.Tensor``."""
    return getattr(node.target, "overloadpacket", node.target)


def leaves(node: fx.Node) -> list[fx.Node]:
    """Nodes among a node's arguments, in order, with repetitions."""
    return nodes_in((node.args, node.kwargs))


def nodes_in(arguments: Any) -> list[fx.Node]:
    """Nodes among nested arguments, in order, with repetitions."""
    found: list[fx.Node] = []
    fx.map_arg(arguments, lambda a: found.append(a))
    return found


def mutated_arguments(node: fx.Node) -> list[fx.Node]:
    """Arguments whose contents an op overwrites, by its schema."""
    if not isinstance(node.target, OpOverload) or not node.target._schema.is_mutable:
        return []
    return arguments_where(node, lambda a: a.alias_info is not None and a.alias_info.is_write)


def arguments_where(node: fx.Node, holds: Callable[[torch.Argument], bool]) -> list[fx.Node]:
    """Nodes among those arguments of an op of which something holds in its schema."""
    assert isinstance(node.target, OpOverload)
    return nodes_in(
        [
            node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
            for index, argument in enumerate(node.target._schema.arguments)
            if holds(argument)
        ]
    )


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors in a traced value: a tensor, or nested tuples with anything else between."""
    return [t for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def is_tangent(node: fx.Node) -> bool:
    """Whether a node is what the backward is called with, as AOTAutograd names it."""
    return node.op == "placeholder" and "tangents" in str(node.target)


def flat_outputs(graph: fx.Graph) -> list[Any]:
    """What a graph returns, nested results taken apart."""
    return pytree.arg_tree_leaves(*graph.output_node().args)
