"""Collectives in a joint graph: all ranks make the same ones, once and in one order."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from passes.analysis.joint import JointGraph
from passes.phases import Phase


def test_a_collective_of_the_backward_stays_there() -> None:
    """It gathers an input, so nothing but its place says to which half it belongs."""
    graph, x = fx.Graph(), torch.ones(4)
    op = torch.ops._c10d_functional

    def call(target: Any, *args: Any, late: bool = True) -> fx.Node:
        node = graph.call_function(target, args)
        node.meta["val"] = torch.ones(4)
        node.meta["partitioner_tag"] = "is_backward" if late else "is_forward"
        return node

    primal, tangent = graph.placeholder("primals_1"), graph.placeholder("tangents_1")
    primal.meta["val"], tangent.meta["val"] = x, torch.ones(4)
    out = call(torch.ops.aten.sin.default, primal, late=False)
    early = call(op.all_reduce.default, primal, "sum", "0", late=False)
    late = call(torch.ops.aten.mul.Tensor, tangent, primal)
    gathered = call(op.all_gather_into_tensor.default, primal, 1, "0")
    used = call(torch.ops.aten.mul.Tensor, late, gathered)
    used = call(torch.ops.aten.mul.Tensor, used, early)
    graph.output((out, used))
    sides = JointGraph.from_module(fx.GraphModule({}, graph), 1).phases
    assert sides[gathered.name] is Phase.BACKWARD
    assert sides[early.name] is Phase.FORWARD
