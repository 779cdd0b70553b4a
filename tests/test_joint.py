"""Roles, sides and storages of named graphs, worked out by hand."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from fxremat.constraints.rules import fixed
from fxremat.frontend.build import Sizing, formulate
from passes.analysis.joint import JointGraph, Role
from passes.cleanup.clean import clean
from passes.node_utils import mutated_arguments
from passes.phases import Phase
from passes.printer import render
from passes.recompute.replay_support import with_replay_support
from passes.split.split import split
from passes.split.verify import verify
from tests.graphs import CASES, aliases, by_role, by_side, joint, joint_module

aten = torch.ops.aten


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
    sides = (Phase.FORWARD, Phase.DEFERRABLE, Phase.BACKWARD)
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
    assert set(graph.roles) == set(graph.phases) == {n.name for n in graph.nodes}
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
    assert graph.phases["primals_1"] is Phase.FORWARD
    assert graph.phases["tangents_1"] is graph.phases["output"] is Phase.BACKWARD


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
    assert graph.phases["getitem_1"] is Phase.DEFERRABLE
    assert graph.phases[norm.name] is graph.phases["getitem_3"] is Phase.FORWARD


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
    assert all(graph.phases[name] is Phase.DEFERRABLE for name in sizes)


def test_writes_of_the_epilogue() -> None:
    graph = joint("batch_norm", cleaned=False)
    assert graph.written == {"primals_4", "primals_5"}
    nodes = {n.name: n for n in graph.nodes}
    assert [n.name for n in mutated_arguments(nodes["copy_"])] == ["primals_4"]
    assert graph.roles["copy_"] is Role.OP
    assert graph.phases["copy_"] is Phase.FORWARD
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


# --- a joint graph is never changed ------------------------------------------------------------


def look_of(graph: JointGraph) -> tuple[object, ...]:
    """All that a joint graph says: text, notes on nodes, and what was read off them."""
    notes = {n.name: {k: v for k, v in n.meta.items() if k != "val"} for n in graph.nodes}
    mappings = (graph.roles, graph.phases, graph.storages, graph.states, graph.copies)
    return render(graph.module), copy.deepcopy(notes), tuple(dict(m) for m in mappings)


@pytest.mark.parametrize("name", ["dropout", "batch_norm", "mutation", "shared_view", "pieces"])
def test_no_later_stage_changes_it(name: str) -> None:
    module, count = joint_module(CASES[name])
    traced = render(module)
    plain = JointGraph.from_module(clean(module), count)
    before = look_of(plain)
    graph = with_replay_support(plain, replay=True)
    assert look_of(plain) == before
    assert (graph is plain) == (not graph.states and not graph.copies)
    supported = look_of(graph)
    formulate(graph, Sizing(lambda n: 1.0, lambda n: 1, lambda t: t.nbytes, lambda n: 0))
    names = [n.name for n in graph.nodes if graph.roles[n.name] in (Role.OP, Role.OUTPUT)]
    forward = [n for n in names if graph.phases[n] in (Phase.FORWARD, Phase.REPLAY_SUPPORT)]
    again = [n for n in forward if not fixed(graph, graph.named[n])]
    backward = [*again, *(n for n in names if n not in forward)]
    halves = split(graph, backward, forward)
    verify(graph, halves)
    assert set() < set(halves.recomputed.values()) <= set(again)
    assert look_of(graph) == supported
    assert look_of(plain) == before
    assert render(module) == traced


@pytest.mark.parametrize("name", ["dropout", "batch_norm", "mutation"])
def test_replay_support_is_read_as_if_it_had_been_traced(name: str) -> None:
    """The nodes added to what was known are what reading the graph anew would tell."""
    graph = with_replay_support(joint(name), replay=True)
    assert graph.states or graph.copies
    anew = JointGraph.from_module(graph.module, graph.num_fwd_outputs)
    support = {*graph.states.values(), *graph.copies.values()}
    assert (graph.roles, graph.storages) == (anew.roles, anew.storages)
    assert graph.written == anew.written
    rest = {n: phase for n, phase in anew.phases.items() if n not in support}
    assert graph.phases == rest | dict.fromkeys(support, Phase.REPLAY_SUPPORT)
