"""Whether two processes compile the same graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx

from fxremat.distributed.graph_fingerprint import graph_fingerprint


def captured(size: int, slope: float, other: bool = False) -> fx.GraphModule:
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.nn.functional.leaky_relu, (x, slope))
    act = torch.sigmoid if other else torch.tanh
    graph.output((graph.call_function(act, (graph.call_function(torch.add, (x, y)),)),))
    return fx.GraphModule({}, graph)


def test_the_fingerprint_tells_ops_from_sizes() -> None:
    one, two = torch.ones(4), torch.ones(5)
    base = graph_fingerprint(captured(4, 0.1), [one])
    assert graph_fingerprint(captured(4, 0.1), [one]) == base
    for module, x in ((captured(4, 0.1), two), (captured(4, 0.2), one)):
        other = graph_fingerprint(module, [x])
        assert other.alike == base.alike
        assert other.equal != base.equal
    assert graph_fingerprint(captured(4, 0.1, other=True), [one]).alike != base.alike


@pytest.mark.parametrize(("group", "same"), [("1", True), ("sum", False)])
def test_the_fingerprint_is_blind_to_the_names_of_process_groups(group: str, same: bool) -> None:
    def call(*args: Any, gelu: bool = False) -> fx.GraphModule:
        graph = fx.Graph()
        x = graph.placeholder("x")
        reduce = torch.ops._c10d_functional.all_reduce
        function = torch.nn.functional.gelu if gelu else reduce
        graph.output((graph.call_function(function, (x, *args)),))
        return fx.GraphModule({}, graph)

    gelu = not same
    made = [graph_fingerprint(call(name, gelu=gelu), [torch.ones(2)]) for name in ("0", group)]
    assert (made[0].equal == made[1].equal) is same
