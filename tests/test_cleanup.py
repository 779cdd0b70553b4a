"""Cleanup passes: each rule on a graph of a few nodes, then on real joint graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from functorch.compile import (  # type: ignore[import-untyped]
    aot_module_simplified,
    default_partition,
    make_boxed_func,
)
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import fxremat
from passes.cleanup.clean import clean, drop_no_ops, drop_unread, remove_dead
from passes.printer import render

aten = torch.ops.aten
FORWARD, BACKWARD = {"partitioner_tag": "is_forward"}, {"partitioner_tag": "is_backward"}


class Draw:
    """A graph drawn by hand on one input ``x`` of the given shape; calls carry real results."""

    def __init__(self, *shape: int) -> None:
        self.graph = Graph()
        self.x = self.graph.placeholder("x")
        self.x.meta["val"] = torch.linspace(0.1, 0.9, 1024)[: torch.Size(shape).numel()].view(shape)

    def call(self, target: Any, *args: Any, meta: Any = None, **kw: Any) -> Node:
        node = self.graph.call_function(target, args, kw)
        vals = torch.fx.map_arg((args, kw), lambda n: n.meta.get("val"))
        node.meta.update(meta or {})
        if isinstance(target, torch._ops.OpOverload) and not target._schema.is_mutable:
            node.meta["val"] = target(*vals[0], **vals[1])
        return node

    def done(self, *outputs: Node | None) -> GraphModule:
        self.graph.output(outputs)
        return GraphModule(torch.nn.Module(), self.graph)


def targets(module: GraphModule) -> list[str]:
    return [str(n.target).split(".")[1] for n in module.graph.nodes if n.op == "call_function"]


def outputs_of(module: GraphModule, x: torch.Tensor) -> tuple[Any, ...]:
    torch.manual_seed(0)
    x = x.clone()
    return (*module(x), x)


def check(module: GraphModule, *rewrites: Callable[[Graph], None]) -> list[str]:
    """Rewrite, check that nothing but the text changed, and return the targets that are left."""
    before = render(module), module.code
    result = clean(module, *rewrites)
    result.graph.lint()
    assert (render(module), module.code) == before
    x = next(iter(module.graph.nodes)).meta["val"]
    for old, new in zip(outputs_of(module, x), outputs_of(result, x), strict=True):
        assert (old is None) == (new is None)
        assert old is None or torch.equal(old, new)
    return targets(result)


# --- dead code ---------------------------------------------------------------------------------


def test_dead_chains_go_and_placeholders_stay() -> None:
    draw = Draw(4)
    draw.graph.placeholder("unused")
    draw.call(aten.exp.default, draw.call(aten.neg.default, draw.x))
    result = clean(draw.done(draw.call(aten.sin.default, draw.x)), remove_dead)
    assert [n.name for n in result.graph.nodes] == ["x", "unused", "sin_default", "output"]


def test_dead_writes_stay() -> None:
    draw = Draw(4)
    draw.call(aten.copy_.default, draw.x, draw.call(aten.neg.default, draw.x))
    assert check(draw.done(None), remove_dead) == ["neg", "copy_"]


def test_dead_random_ops_stay() -> None:
    draw = Draw(4)
    draw.call(aten.bernoulli.default, draw.x)
    assert check(draw.done(draw.call(aten.rand_like.default, draw.x)), remove_dead) == [
        "bernoulli",
        "rand_like",
    ]


def test_dead_asserts_stay() -> None:
    draw = Draw(1)
    for op in (aten._assert_async.default, aten._functional_assert_async.msg):
        node = draw.graph.call_function(
            op, (draw.x, "positive", draw.x)[: len(op._schema.arguments)]
        )
        assert not node.users
    left = targets(clean(draw.done(draw.x), remove_dead))
    assert left == ["_assert_async", "_functional_assert_async"]


def test_dead_higher_order_and_unknown_calls_stay() -> None:
    draw = Draw(4)
    draw.graph.call_function(torch.ops.higher_order.with_effects, (None, aten.sin.default, draw.x))
    draw.graph.call_function(print, (draw.x,))
    module = draw.done(draw.x)
    assert len(clean(module, remove_dead).graph.nodes) == len(module.graph.nodes)


def test_dead_bindings_of_symbolic_sizes_stay() -> None:
    draw = Draw(1)
    draw.call(aten._local_scalar_dense.default, draw.x, meta={"unbacked_bindings": {}})
    draw.call(aten._local_scalar_dense.default, draw.x)
    assert check(draw.done(draw.x), remove_dead) == ["_local_scalar_dense"]


# --- no-ops ------------------------------------------------------------------------------------

NO_OPS: list[tuple[Any, ...]] = [
    (aten.alias.default,),
    (aten.detach.default,),
    (aten.view.default, [2, 4]),
    (aten.reshape.default, [2, 4]),
    (aten.expand.default, [2, 4]),
]


@pytest.mark.parametrize("op", NO_OPS)
def test_no_ops_go(op: tuple[Any, ...]) -> None:
    draw = Draw(2, 4)
    node = draw.call(op[0], draw.x, *op[1:])
    assert check(draw.done(draw.call(aten.sin.default, node)), drop_no_ops) == ["sin"]


@pytest.mark.parametrize("op", NO_OPS)
def test_returned_no_ops_stay(op: tuple[Any, ...]) -> None:
    draw = Draw(2, 4)
    sin = draw.call(aten.sin.default, draw.x)
    module = draw.done(sin, draw.call(op[0], sin, *op[1:]))
    assert len(check(module, drop_no_ops)) == 2


@pytest.mark.parametrize("op", NO_OPS)
def test_no_ops_of_written_storages_stay(op: tuple[Any, ...]) -> None:
    draw = Draw(2, 4)
    node = draw.call(op[0], draw.call(aten.view.default, draw.x, [2, 4]), *op[1:])
    sin = draw.call(aten.sin.default, node)
    draw.call(aten.copy_.default, draw.x, sin)
    assert len(check(draw.done(sin), drop_no_ops)) == 4


@pytest.mark.parametrize(
    "op",
    [
        (aten.view.default, [4, 2]),
        (aten.expand.default, [3, 2, 4]),
        (aten.clone.default,),
        (aten._to_copy.default,),
        (aten.permute.default, [0, 1]),
        (aten.mul.Tensor, 1),
        (aten.add.Tensor, 0),
    ],
)
def test_what_is_not_provably_nothing_stays(op: tuple[Any, ...]) -> None:
    draw = Draw(2, 4)
    node = draw.call(op[0], draw.x, *op[1:])
    assert len(check(draw.done(draw.call(aten.sin.default, node)), drop_no_ops)) == 2


def test_a_view_with_the_same_sizes_but_other_strides_stays() -> None:
    draw = Draw(2, 4)
    view = draw.call(aten.view.default, draw.x, [2, 4])
    view.meta["val"] = torch.empty_strided((2, 4), (1, 2))
    assert len(check(draw.done(draw.call(aten.sin.default, view)), drop_no_ops)) == 2


def test_a_no_op_without_a_known_layout_stays() -> None:
    draw = Draw(2, 4)
    view = draw.call(aten.view.default, draw.x, [2, 4])
    module = draw.done(draw.call(aten.sin.default, view))
    del view.meta["val"], draw.x.meta["val"]
    assert targets(clean(module, drop_no_ops)) == ["view", "sin"]


def test_a_no_op_with_a_pin_of_its_own_stays() -> None:
    draw = Draw(4)
    node = draw.call(aten.alias.default, draw.x, meta={"recompute": 1})
    assert len(check(draw.done(draw.call(aten.sin.default, node)), drop_no_ops)) == 2


# --- together ----------------------------------------------------------------------------------


def test_clean_is_all_three_and_idempotent() -> None:
    draw = Draw(4)
    exp, exp_1 = (draw.call(aten.exp.default, draw.x) for _ in range(2))
    mul = draw.call(aten.mul.Tensor, exp, exp_1)
    draw.call(aten.neg.default, draw.x)
    module = draw.done(draw.call(aten.sin.default, draw.call(aten.alias.default, mul)))
    assert check(module) == ["exp", "mul", "sin"]
    assert render(clean(clean(module))) == render(clean(module))


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.line = torch.nn.Linear(8, 8)
        self.last = torch.nn.Linear(8, 8)

    def block(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(self.line(x)) + torch.nn.functional.gelu(self.line(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        y = torch.nn.functional.dropout(self.block(y), 0.5)
        y = checkpoint(self.block, y, use_reentrant=False)
        return torch.nn.functional.cross_entropy(torch.softmax(self.last(y), 1), y.argmax(1))


def train(rewrite: Callable[[GraphModule], GraphModule] | None, decompose: bool) -> list[Any]:
    """One step through AOTAutograd; returns the joint graph, then loss, gradients, buffers."""
    from torch._inductor.decomposition import select_decomp_table

    torch._dynamo.reset()
    torch.manual_seed(0)
    model, x = Net(), torch.randn(4, 3, 8, 8)
    joints: list[GraphModule] = []

    def partition(joint: GraphModule, inputs: Any, **kwargs: Any) -> Any:
        joints.append(joint)
        if rewrite is not None:
            before = render(joint)
            joint, old = rewrite(joint), joint
            assert render(old) == before
            joint.graph.lint()
        return default_partition(joint, inputs, **kwargs)

    def backend(module: GraphModule, inputs: Any) -> Any:
        return aot_module_simplified(
            module,
            inputs,
            fw_compiler=lambda graph, _: make_boxed_func(graph.forward),
            partition_fn=partition,
            decompositions=select_decomp_table() if decompose else {},
            keep_inference_input_mutations=True,
        )

    loss = torch.compile(model, backend=backend)(x)
    loss.backward()
    tensors = [loss, *(p.grad for p in model.parameters()), *model.buffers(), torch.rand(1)]
    return [joints[0], *tensors]


@pytest.mark.parametrize("decompose", [False, True])
def test_real_joint_graphs_give_the_same_bits(decompose: bool) -> None:
    joint, *expected = train(None, decompose)
    _, *found = train(clean, decompose)
    for old, new in zip(expected, found, strict=True):
        assert torch.equal(old, new)
    result = clean(joint)
    assert len(result.graph.nodes) < len(joint.graph.nodes)
    kept = {node.name for node in result.graph.nodes}
    assert [n.name for n in joint.graph.nodes if n.name in kept] == [
        n.name for n in result.graph.nodes
    ]
    no_ops = (aten.alias.default, aten.detach.default)
    for node in joint.graph.nodes:
        held = "recompute" in node.meta and node.users and node.target not in no_ops
        if node.op == "placeholder" or held or node.target is aten.copy_.default:
            assert node.name in kept


def test_modules_attributes_and_meta_are_carried() -> None:
    draw = Draw(4)
    held = draw.graph.create_node("get_attr", "held")
    draw.graph.output((draw.graph.call_function(aten.add.Tensor, (draw.x, held)),))
    root = torch.nn.Module()
    root.register_buffer("held", torch.full((4,), 2.0))
    module = GraphModule(root, draw.graph)
    module.meta["origin"] = "here"
    result = clean(module)
    assert torch.equal(result(torch.ones(4))[0], torch.full((4,), 3.0))
    assert result.meta == {"origin": "here"}


# --- arguments that an op does not read ---------------------------------------------------------

BATCH_NORM_BACKWARD = aten.native_batch_norm_backward.default


def traced(training: bool) -> tuple[GraphModule, list[torch.Tensor]]:
    def backward(*args: torch.Tensor) -> list[torch.Tensor]:
        grad, x, weight, mean, var, saved_mean, saved_scale = args
        found = BATCH_NORM_BACKWARD(
            grad, x, weight, mean, var, saved_mean, saved_scale, training, 1e-5, [True] * 3
        )
        return list(found)

    torch.manual_seed(0)
    x, weight = torch.randn(8, 3, 4), torch.randn(3)
    stats = [torch.randn(3), torch.rand(3), torch.randn(3), torch.rand(3)]
    args = [torch.randn_like(x), x, weight, *stats]
    return make_fx(backward)(*args), args


def running(module: GraphModule) -> list[object]:
    (node,) = module.graph.find_nodes(op="call_function", target=BATCH_NORM_BACKWARD)
    return list(node.args[3:5])


def test_training_reads_no_running_statistics() -> None:
    module, args = traced(training=True)
    before = module(*args)
    drop_unread(module.graph)
    module.recompile()
    assert running(module) == [None, None]
    assert all(map(torch.equal, module(*args), before))


def test_evaluation_reads_them() -> None:
    module, _ = traced(training=False)
    drop_unread(module.graph)
    assert None not in running(module)


def test_a_trained_net_saves_no_running_statistics() -> None:
    layers = (torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
    net = torch.nn.Sequential(*layers, torch.nn.Flatten())
    ours = fxremat.backend(1.0, inner="eager")
    torch.compile(net, backend=ours)(torch.randn(2, 3, 8, 8)).sum().backward()
    (plan,) = ours.plans
    # convolution output, its mean and scale, and the result of relu, which flatten holds
    assert len(plan.saved) <= 4
