"""Writes of the backward to what the forward has returned.

An ``autograd.Function`` may save a tensor that the step also returns, and write to it in its
backward. In the functional joint graph the forward then returns what the tensor holds after that
write, which it cannot know. So the forward returns what the tensor holds before, and the backward
ends with the write.

Before::

    mul = aten.mul(ones, 0.5);  add = aten.add(mul, tangents_1);  return (add, gradient)

After ``put_late_writes_last``::

    mul = aten.mul(ones, 0.5);  add = aten.add(mul, tangents_1);  copy_ = aten.copy_(mul, add)
    return (mul, gradient)
"""

from __future__ import annotations

import torch
from torch import fx

from passes.errors import GraphError
from passes.node_utils import flat_outputs, is_tangent
from passes.torch_internals import copied

__all__ = ["put_late_writes_last"]

aten = torch.ops.aten


def put_late_writes_last(module: fx.GraphModule, num_fwd_outputs: int) -> fx.GraphModule:
    """The joint graph with the backward's writes to what the forward returned at its end.

    Args:
        module: the joint graph; it is not changed.
        num_fwd_outputs: how many of its outputs belong to the forward.

    Raises:
        GraphError: if it cannot be told which tensor the backward writes to.
    """
    if not _late(module.graph).intersection(flat_outputs(module.graph)[:num_fwd_outputs]):
        return module
    made = copied(module)
    late, output = _late(made.graph), made.graph.output_node()
    returned = flat_outputs(made.graph)
    for index, value in enumerate(returned[:num_fwd_outputs]):
        if value in late:
            returned[index] = written = _written(value, late)
            with made.graph.inserting_before(output):
                write = made.graph.call_function(aten.copy_.default, (written, value))
            write.meta = {"val": written.meta["val"], "partitioner_tag": "must_be_in_backward"}
    output.args = (tuple(returned),)
    return made


def _late(graph: fx.Graph) -> set[fx.Node]:
    """What depends on a tangent."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        if is_tangent(node) or (node.op != "output" and not found.isdisjoint(node.all_input_nodes)):
            found.add(node)
    return found


def _written(node: fx.Node, late: set[fx.Node]) -> fx.Node:
    """The tensor of the forward that a value has overwritten: ops that write take it first."""
    tensor, source = node.meta["val"], node
    while source in late:
        first = source.args[0] if source.args else None
        like = first.meta.get("val") if isinstance(first, fx.Node) else None
        if (
            not isinstance(first, fx.Node)
            or not isinstance(like, torch.Tensor)
            or (like.shape, like.dtype) != (tensor.shape, tensor.dtype)
        ):
            raise GraphError(
                "the forward returns it, but the backward makes it: a tensor that is returned and "
                "saved is written to in the backward by other means than in-place ops; return a "
                "clone of it, or write there with in-place ops",
                node.name,
            )
        source = first
    return source
