"""Roles, sides and storages of named graphs, worked out by hand; graphs that cannot be taken."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from passes.errors import GraphError
from passes.joint import JointGraph, Role, Side, leaves, mutated_arguments
from tests.graphs import CASES, Sketch, joint

aten = torch.ops.aten


def by_role(graph: JointGraph, role: Role) -> list[str]:
    return [name for name, found in graph.roles.items() if found is role]


def by_side(graph: JointGraph, side: Side, *roles: Role) -> str:
    kinds = roles or (Role.OP,)
    names = [n.name for n in graph.nodes if graph.roles[n.name] in kinds]
    return " ".join(name for name in names if graph.sides[name] is side)


def aliases(graph: JointGraph) -> dict[str, str]:
    """Storages of the nodes that have none of their own."""
    return {name: made for name, made in graph.storages.items() if name != made}


# --- the named graphs; forward, either and backward ops ----------------------------------------

SIDES = {
    "chain": ("sin exp sigmoid", "cos", "sigmoid_backward mul mul_1"),
    "diamond": ("exp sin sigmoid mul", "cos", "mul_1 mul_2 sigmoid_backward mul_3 add mul_4"),
    "residual": (
        "mm relu add mm_1 relu_1 add_1 sin",
        "cos",
        "mul threshold_backward mm_2 mm_3 add_2 threshold_backward_1 mm_4 mm_5 add_3",
    ),
    "shared_view": (
        "mm exp sum_1 sin mul",
        "cos",
        "mul_1 mul_2 mul_3 select_backward mul_4 add mm_1 mm_2",
    ),
    "two_outputs": ("sin exp sum_1", "cos", "mul add mul_1"),
    "random_op": ("rand_like mul exp sin", "cos", "mul_1 mul_2 mul_3"),
    "reduction": (
        "mean sub pow_1 mean_1 log",
        "pow_2 mul",
        "div div_1 mul_1 neg sum_1 div_2 add",
    ),
    "batch_norm": (
        "sin _native_batch_norm_legit_functional relu copy_ copy__1",
        "cos",
        "threshold_backward native_batch_norm_backward mul",
    ),
    "mutation": ("exp mul mul_1 sin mul_2 copy_", "cos", "mul_3 mul_4 mul_5"),
    "dropout": (
        "mm exp native_dropout sin exp_1",
        "cos",
        "mul mul_1 native_dropout_backward mul_2 mm_1 mm_2",
    ),
    "pieces": (
        "exp mul sin sum_1 mul_1 sigmoid sum_2 add",
        "cos",
        "sigmoid_backward mul_2 mul_3 mul_4 mul_5 mul_6 stack cat cat_1 mul_7",
    ),
    "alias_of_input": ("mul sin exp", "cos", "mul_1 mul_2 mul_3 mul_4"),
    "either": ("sin pow_1 sum_1", "pow_2 mul cos", "mul_1 mul_2"),
    "spare_pool": ("max_1 mul sin", "cos", "mul_1 mul_2"),
    "dynamic_view": ("mm sin sum_1 exp mean", "cos", "div mul_1 mul_2 mm_1 mm_2"),
}


@pytest.mark.parametrize("name", SIDES)
def test_sides_of_ops(name: str) -> None:
    graph = joint(name, cleaned=False)
    sides = (Side.FORWARD, Side.EITHER, Side.BACKWARD)
    assert tuple(by_side(graph, side) for side in sides) == SIDES[name]


STORAGES = {
    "chain": {
        **dict.fromkeys(("detach", "detach_3"), "exp"),
        **dict.fromkeys(("detach_1", "detach_2"), "sigmoid"),
    },
    "shared_view": {
        **dict.fromkeys(("view", "transpose", "select"), "mm"),
        **dict.fromkeys(("detach", "detach_1"), "exp"),
        **dict.fromkeys(("unsqueeze", "expand"), "mul_2"),
        **{"transpose_1": "mul_4", "view_1": "add", "t": "primals_1", "t_1": "primals_2"},
    },
    "two_outputs": {"detach": "exp", "detach_1": "exp", "expand": "tangents_2"},
    "batch_norm": {
        **dict.fromkeys(("detach", "detach_1"), "relu"),
        **{"copy_": "primals_4", "copy__1": "primals_5"},
    },
    "mutation": {"copy_": "primals_2"},
    "pieces": {
        **dict.fromkeys(("detach", "detach_3", *(f"getitem_{i}" for i in range(1, 6))), "exp"),
        **{"getitem": "exp", "detach_1": "sigmoid", "detach_2": "sigmoid"},
        **{"expand": "tangents_1", "expand_1": "tangents_1"},
    },
    "alias_of_input": {"view": "primals_1", "detach": "exp", "detach_1": "exp"},
    "spare_pool": {"unsqueeze": "getitem"},
}


@pytest.mark.parametrize("name", STORAGES)
def test_storages(name: str) -> None:
    assert aliases(joint(name, cleaned=False)) == STORAGES[name]


@pytest.mark.parametrize("name", CASES)
def test_every_tensor_has_a_storage_that_is_made_once(name: str) -> None:
    graph = joint(name, cleaned=False)
    assert set(graph.roles) == set(graph.sides) == {n.name for n in graph.nodes}
    for node in graph.nodes:
        tensor = isinstance(node.meta.get("val"), Tensor)
        assert (node.name in graph.storages) == (tensor and node.op != "output")
    made = [s for n in graph.nodes if graph.roles[n.name] is Role.OP for s in graph.makes(n)]
    assert len(made) == len(set(made))
    inputs = {*by_role(graph, Role.INPUT), *by_role(graph, Role.TANGENT)}
    assert set(made) | inputs == set(graph.storages.values())


def test_roles_of_a_chain() -> None:
    graph = joint("chain", cleaned=False)
    assert by_role(graph, Role.INPUT) == ["primals_1"]
    assert by_role(graph, Role.TANGENT) == ["tangents_1"]
    assert by_role(graph, Role.OUTPUT) == ["output"]
    assert by_role(graph, Role.VIEW) == ["detach", "detach_1", "detach_2", "detach_3"]
    assert graph.sides["primals_1"] is Side.FORWARD
    assert graph.sides["tangents_1"] is graph.sides["output"] is Side.BACKWARD


def test_tuple_of_an_op_is_taken_apart_by_items() -> None:
    graph = joint("batch_norm", cleaned=False)
    nodes = {n.name: n for n in graph.nodes}
    norm = nodes["_native_batch_norm_legit_functional"]
    items = ("getitem", "getitem_1", "getitem_2", "getitem_3", "getitem_4")
    assert tuple(n.name for n in graph.items(norm)) == items
    assert graph.makes(norm) == items
    assert norm.name not in graph.storages
    assert all(graph.roles[name] is Role.ITEM for name in items)
    # What only the backward reads of a forward op is "either"; the op is not.
    assert graph.sides["getitem_1"] is Side.EITHER
    assert graph.sides[norm.name] is graph.sides["getitem_3"] is Side.FORWARD


def test_tuple_of_views_is_a_view() -> None:
    graph = joint("pieces", cleaned=False)
    views = ["split", "split_1", "unbind", *("getitem", "getitem_1", "getitem_4")]
    assert all(graph.roles[name] is Role.VIEW for name in views)
    assert not {"split", "split_1", "unbind"} & set(graph.storages)
    split = next(n for n in graph.nodes if n.name == "split_1")
    assert graph.reads(split) == ("exp",)


def test_sizes() -> None:
    graph = joint("dynamic_view", cleaned=False)
    sizes = ["sym_size_int", "mul", "sym_size_int_1", "sym_size_int_2"]
    assert by_role(graph, Role.SIZE) == sizes
    assert all(graph.sides[name] is Side.EITHER for name in sizes)


def test_writes_of_the_epilogue() -> None:
    graph = joint("batch_norm", cleaned=False)
    assert graph.written == {"primals_4", "primals_5"}
    nodes = {n.name: n for n in graph.nodes}
    assert [n.name for n in mutated_arguments(nodes["copy_"])] == ["primals_4"]
    assert graph.roles["copy_"] is Role.OP
    assert graph.sides["copy_"] is Side.FORWARD
    assert graph.makes(nodes["copy_"]) == ()
    assert graph.reads(nodes["copy_"]) == ("primals_4", "getitem_3")
    assert joint("chain").written == frozenset()


def test_outputs_without_absent_gradients() -> None:
    forward, backward = joint("batch_norm", cleaned=False).outputs()
    assert [n.name for n in forward] == ["relu"]
    assert [n.name for n in backward] == ["mul", "getitem_6", "getitem_7"]


def test_result_that_nobody_takes_is_spare() -> None:
    graph = joint("spare_pool", cleaned=False)
    (spare,) = graph.spare["max_1"]
    assert (spare.dtype, tuple(spare.shape)) == (torch.int64, (4,))
    assert joint("pooled", cleaned=False).spare["max_pool2d_with_indices"] == ()


# --- drawn by hand -----------------------------------------------------------------------------


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
    assert graph.sides["drawn"] is Side.FORWARD
    assert graph.sides["cos"] is Side.EITHER


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
    assert by_side(graph, Side.FORWARD) == "cos copy_"
    assert by_side(graph, Side.EITHER) == "sin"


def test_write_of_the_backward_stays_there() -> None:
    draw = sketch()
    draw.call("cos", aten.cos.default, draw["primals_1"])
    draw.call("mul", aten.mul.Tensor, draw["tangents_1"], draw["cos"])
    value = draw["primals_1"].meta["val"]
    draw.call("copy_", aten.copy_.default, draw["primals_1"], draw["mul"], val=value)
    graph = draw.done([], [draw["mul"]])
    assert by_side(graph, Side.BACKWARD) == "mul copy_"
    assert by_side(graph, Side.EITHER) == "cos"


@pytest.mark.parametrize(
    ("tag", "side"),
    [
        ("is_backward", Side.BACKWARD),
        ("must_be_in_backward", Side.BACKWARD),
        ("must_be_in_forward", Side.FORWARD),
        (None, Side.FORWARD),
    ],
)
def test_tag_of_an_effect(tag: str | None, side: Side) -> None:
    draw = sketch()
    draw.call("drawn", aten.rand_like.default, draw["primals_1"], partitioner_tag=tag)
    assert draw.done([], [draw["tangents_1"]]).sides["drawn"] is side


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
    assert graph.sides["_assert_async_msg"] is Side.FORWARD
    assert graph.roles["_assert_async_msg"] is Role.OP
