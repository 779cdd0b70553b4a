"""Roles, sides and storages of graphs drawn by hand; graphs that cannot be taken."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch import fx

from passes.analysis.joint import JointGraph, Role
from passes.errors import GraphError
from passes.node_utils import leaves
from passes.phases import Phase
from tests.graphs import Sketch, aliases, by_role, by_side

aten = torch.ops.aten


def sketch() -> Sketch:
    return Sketch(primals_1=torch.rand(4, 4), tangents_1=torch.rand(4, 4))


def test_unsafe_view_is_seen_as_a_view() -> None:
    draw = sketch()
    draw.call("sin", aten.sin.default, draw["primals_1"])
    draw.call("flat", aten._unsafe_view.default, draw["sin"], [16])
    draw.call(
        "rows", aten.select.int, draw.call("v", aten.view.default, draw["flat"], [8, 2]), 0, 0
    )
    graph = draw.done([draw["rows"]], [draw["tangents_1"]])
    assert aliases(graph) == {"flat": "sin", "v": "sin", "rows": "sin"}
    assert by_role(graph, Role.VIEW) == ["flat", "v", "rows"]


def test_a_view_that_was_traced_apart_is_a_view() -> None:
    """Passes of Inductor trace what they put into a graph by itself, in storages of its own."""
    draw = sketch()
    draw.call("sin", aten.sin.default, draw["primals_1"])
    turned = draw.call(
        "turned", aten.permute.default, draw["sin"], [1, 0], val=torch.rand(4, 4).t()
    )
    draw.call("row", aten.select.int, turned, 0, 0)
    rows = list(torch.rand(4, 4).split(2))
    halves = draw.call("halves", aten.split.Tensor, draw["sin"], 2, val=rows)
    draw.call("half", operator.getitem, halves, 1)
    graph = draw.done([draw["row"], draw["half"]], [draw["tangents_1"]])
    assert aliases(graph) == {"turned": "sin", "row": "sin", "half": "sin"}
    assert by_role(graph, Role.VIEW) == ["turned", "row", "halves", "half"]


def test_reshape_that_copies_is_an_op() -> None:
    draw = sketch()
    draw.call("t", aten.t.default, draw["primals_1"])
    draw.call("copied", aten.reshape.default, draw["t"], [16])
    draw.call("shared", aten.reshape.default, draw["primals_1"], [16])
    graph = draw.done([draw["copied"], draw["shared"]], [draw["tangents_1"]])
    assert aliases(graph) == {"t": "primals_1", "shared": "primals_1"}
    assert graph.roles["copied"] is Role.OP
    assert graph.roles["shared"] is Role.VIEW


def test_two_placeholders_of_one_storage() -> None:
    whole = torch.rand(4, 4)
    draw = Sketch(primals_1=whole, primals_2=whole[1:], tangents_1=torch.rand(3, 4))
    draw.call("sin", aten.sin.default, draw["primals_2"])
    draw.call("copy_", aten.copy_.default, draw["primals_1"], draw["primals_1"], val=whole)
    graph = draw.done([draw["sin"]], [draw["tangents_1"]])
    assert aliases(graph) == {"primals_2": "primals_1", "copy_": "primals_1"}
    assert by_role(graph, Role.INPUT) == ["primals_1", "primals_2"]
    assert graph.reads(draw["sin"]) == ("primals_1",)
    assert graph.written == {"primals_1"}


def test_list_of_fresh_tensors() -> None:
    draw = sketch()
    draw.call("parts", aten.split_copy.Tensor, draw["primals_1"], 2)
    draw.call("first", operator.getitem, draw["parts"], 0)
    graph = draw.done([draw["first"]], [draw["tangents_1"]])
    assert graph.roles["parts"] is Role.OP
    assert graph.makes(draw["parts"]) == ("first",)
    assert [tuple(t.shape) for t in graph.spare["parts"]] == [(2, 4)]


def test_random_op_that_nobody_reads_belongs_to_the_forward() -> None:
    draw = sketch()
    draw.call("drawn", aten.rand_like.default, draw["primals_1"])
    draw.call("cos", aten.cos.default, draw["primals_1"])
    draw.call("mul", aten.mul.Tensor, draw["tangents_1"], draw["cos"])
    graph = draw.done([draw["primals_1"]], [draw["mul"]])
    assert graph.phases["drawn"] is Phase.FORWARD
    assert graph.phases["cos"] is Phase.DEFERRABLE


def test_reader_of_what_the_forward_overwrites_belongs_to_the_forward() -> None:
    """Run in the backward it would read the new contents, though only the backward needs it."""
    state = torch.rand(4, 4)
    draw = Sketch(primals_1=state, primals_2=torch.rand(4, 4), tangents_1=torch.rand(4, 4))
    draw.call("t", aten.t.default, draw["primals_1"])
    draw.call("cos", aten.cos.default, draw["t"])
    draw.call("sin", aten.sin.default, draw["cos"])
    draw.call("mul", aten.mul.Tensor, draw["tangents_1"], draw["sin"])
    draw.call("copy_", aten.copy_.default, draw["primals_1"], draw["primals_2"], val=state)
    graph = draw.done([], [draw["mul"]])
    assert by_side(graph, Phase.FORWARD) == "cos copy_"
    assert by_side(graph, Phase.DEFERRABLE) == "sin"


def test_write_of_the_backward_stays_there() -> None:
    draw = sketch()
    draw.call("cos", aten.cos.default, draw["primals_1"])
    draw.call("mul", aten.mul.Tensor, draw["tangents_1"], draw["cos"])
    value = draw["primals_1"].meta["val"]
    draw.call("copy_", aten.copy_.default, draw["primals_1"], draw["mul"], val=value)
    graph = draw.done([], [draw["mul"]])
    assert by_side(graph, Phase.BACKWARD) == "mul copy_"
    assert by_side(graph, Phase.DEFERRABLE) == "cos"


@pytest.mark.parametrize(
    ("tag", "side"),
    [
        ("is_backward", Phase.BACKWARD),
        ("must_be_in_backward", Phase.BACKWARD),
        ("must_be_in_forward", Phase.FORWARD),
        (None, Phase.FORWARD),
    ],
)
def test_tag_of_an_effect(tag: str | None, side: Phase) -> None:
    draw = sketch()
    draw.call("drawn", aten.rand_like.default, draw["primals_1"], partitioner_tag=tag)
    assert draw.done([], [draw["tangents_1"]]).phases["drawn"] is side


def test_reads_and_leaves() -> None:
    draw = sketch()
    x = draw["primals_1"]
    draw.call("t", aten.t.default, x)
    draw.call("cat", aten.cat.default, [x, draw["t"], draw["tangents_1"], x])
    graph = draw.done([], [draw["cat"]])
    assert [n.name for n in leaves(draw["cat"])] == ["primals_1", "t", "tangents_1", "primals_1"]
    assert graph.reads(draw["cat"]) == ("primals_1", "tangents_1")


# --- graphs that cannot be taken ---------------------------------------------------------------


@pytest.mark.parametrize("count", [-1, 3])
def test_wrong_number_of_forward_outputs(count: int) -> None:
    draw = sketch()
    draw.graph.output([draw["primals_1"], draw["tangents_1"]])
    module = fx.GraphModule({}, draw.graph)
    with pytest.raises(GraphError, match=f"{count} forward outputs asked for, the graph has 2"):
        JointGraph.from_module(module, count)


@pytest.mark.parametrize("kind", ["call_module", "call_method"])
def test_call_that_is_no_op(kind: str) -> None:
    draw = sketch()
    call: Any = getattr(draw.graph, kind)
    node = call("relu", (draw["primals_1"],))
    draw.graph.output([node])
    module = fx.GraphModule({"relu": torch.nn.ReLU()}, draw.graph)
    with pytest.raises(GraphError, match=f"a {kind} of 'relu'; the pass takes") as error:
        JointGraph.from_module(module, 1)
    assert error.value.node == "relu"


def test_call_without_a_traced_value() -> None:
    draw = sketch()
    node = draw.graph.call_function(aten.sin.default, (draw["primals_1"],))
    draw.graph.output([node])
    with pytest.raises(GraphError, match="sin_default: no traced value in meta") as error:
        JointGraph.from_module(fx.GraphModule({}, draw.graph), 1)
    assert error.value.node == "sin_default"


def test_assertion_needs_no_traced_value() -> None:
    draw = sketch()
    draw.graph.call_function(aten._assert_async.msg, (draw["primals_1"], "why"))
    graph = draw.done([draw["primals_1"]], [draw["tangents_1"]])
    assert graph.phases["_assert_async_msg"] is Phase.FORWARD
    assert graph.roles["_assert_async_msg"] is Role.OP
