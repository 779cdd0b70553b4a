"""What a node of a graph calls, is given, overwrites and returns."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from passes.torch_internals import OpOverload

__all__ = ["flat_outputs", "leaves", "mutated_arguments", "nodes_in", "packet", "tensors_in"]


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
    found: list[fx.Node] = []
    for index, argument in enumerate(node.target._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        given = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
        found += nodes_in(given)
    return found


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors in a traced value: a tensor, or nested tuples with anything else between."""
    return [t for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def flat_outputs(graph: fx.Graph) -> list[Any]:
    """What a graph returns, nested results taken apart."""
    return pytree.arg_tree_leaves(*graph.output_node().args)
