"""One test a rule: each would fail if the rule were dropped."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from functorch.compile import default_partition, make_boxed_func  # type: ignore[import-untyped]
from torch import Tensor, fx
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from fxremat.constraints.rules import FIXED, UNSAVEABLE, fixed, unsaveable
from passes.analysis.joint import JointGraph, Role
from passes.cleanup.clean import clean
from passes.torch_internals import compile_with_aot
from tests.graphs import Sketch, joint

aten = torch.ops.aten
REASON = {rule.name: rule.reason for rule in FIXED}


def verdict(graph: JointGraph, name: str) -> str:
    """Name of the rule that fixes a node, or ""."""
    node = next(n for n in graph.nodes if n.name == name)
    reason = fixed(graph, node)
    return next((name for name, text in REASON.items() if text == reason), "")


def one_call(target: Any, *args: Any, val: Any = None, **meta: Any) -> str:
    """The verdict on a call; "x" among the arguments stands for an input."""
    draw = Sketch(primals_1=torch.rand(4, 4), tangents_1=torch.rand(4, 4))
    given = [draw["primals_1"] if a == "x" else a for a in args]
    draw.call("it", target, *given, val=val, **meta)
    return verdict(draw.done([draw["primals_1"]], [draw["tangents_1"]]), "it")


def test_every_rule_has_a_name_and_a_reason_of_its_own() -> None:
    for table in (FIXED, UNSAVEABLE):
        assert len({r.name for r in table}) == len({r.reason for r in table}) == len(table)


@pytest.mark.parametrize(
    "name", ["sin", "exp", "sigmoid", "cos", "sigmoid_backward", "mul"], ids=str
)
def test_plain_ops_may_run_again(name: str) -> None:
    assert verdict(joint("chain"), name) == ""


# --- random ------------------------------------------------------------------------------------


def test_random() -> None:
    assert verdict(joint("random_op"), "rand_like") == "random"
    assert verdict(joint("dropout"), "native_dropout") == "random"
    assert one_call(aten.bernoulli.p, "x", 0.5) == "random"


@pytest.mark.parametrize(("dropout", "rule"), [(0.0, ""), (0.5, "random")])
@pytest.mark.parametrize(
    ("target", "before"),
    [
        (aten._scaled_dot_product_flash_attention.default, ()),
        (aten._scaled_dot_product_flash_attention_for_cpu.default, ()),
        (aten._scaled_dot_product_efficient_attention.default, (None, True)),
        (aten._scaled_dot_product_cudnn_attention.default, (None, True)),
    ],
    ids=lambda p: getattr(p, "__name__", ""),
)
def test_attention_draws_only_with_dropout(
    target: Any, before: tuple[Any, ...], dropout: float, rule: str
) -> None:
    value = torch.rand(4, 4)
    tagged = torch.Tag.nondeterministic_seeded in target.tags
    got = one_call(target, "x", "x", "x", *before, dropout, val=value)
    assert got == (rule if tagged else "")


def test_attention_without_a_word_on_dropout_draws_none() -> None:
    assert one_call(aten._scaled_dot_product_flash_attention.default, "x", "x", "x", val=()) == ""


def test_what_a_seed_determines_may_run_again() -> None:
    from torch._inductor import inductor_prims

    value = torch.rand(4)
    assert one_call(inductor_prims.seeds, 2, torch.device("cpu"), val=value) == "random"
    assert one_call(inductor_prims.random, [4], "x", "rand", val=value) == ""


# --- writes ------------------------------------------------------------------------------------


def test_mutation() -> None:
    assert verdict(joint("batch_norm"), "copy_") == "mutation"
    assert one_call(aten.set_.source_Tensor, "x", "x", val=torch.rand(4)) == "mutation"
    assert one_call(aten.resize_.default, "x", [2], val=torch.rand(4)) == "mutation"


def test_read_of_a_written_input() -> None:
    graph = joint("mutation")
    assert verdict(graph, "exp") == verdict(graph, "mul_1") == "written"
    assert verdict(graph, "mul") == verdict(graph, "mul_2") == ""


def test_read_of_a_written_input_through_views() -> None:
    draw = Sketch(primals_1=torch.rand(4, 4), tangents_1=torch.rand(2))
    x = draw["primals_1"]
    draw.call("row", aten.select.int, draw.call("t", aten.t.default, x), 0, 1)
    draw.call("sin", aten.sin.default, draw["row"])
    draw.call("copy_", aten.copy_.default, x, x, val=x.meta["val"])
    graph = draw.done([draw["sin"]], [draw["tangents_1"]])
    assert verdict(graph, "sin") == "written"


def test_batch_norm_runs_again_without_its_statistics() -> None:
    name = "_native_batch_norm_legit_functional"
    assert verdict(joint("batch_norm"), name) == ""
    # As traced, its backward is handed the new statistics, which that form does not yield.
    assert verdict(joint("batch_norm", cleaned=False), name) == "written"


# --- effects and the unknown -------------------------------------------------------------------


@pytest.mark.parametrize("space", ["_c10d_functional", "_dtensor", "symm_mem"])
def test_collective(space: str) -> None:
    with scoped(space) as library:
        library.define("fxremat_test(Tensor x) -> Tensor")
        target = getattr(torch.ops, space).fxremat_test.default
        assert one_call(target, "x", val=torch.rand(4)) == "collective"


def test_higher_order() -> None:
    target = torch.ops.higher_order.cond
    assert one_call(target, "x", val=(torch.rand(4),)) == "higher-order"


def test_effect() -> None:
    assert one_call(aten._assert_async.msg, "x", "why", val=()) == "effect"


def test_custom_op_with_an_effect() -> None:
    from torch._higher_order_ops.effects import _EffectType, _register_effectful_op

    with scoped("fxremat_test") as library:
        library.define("log(Tensor x) -> Tensor")
        target = torch.ops.fxremat_test.log.default
        handle = _register_effectful_op(target, _EffectType.ORDERED)
        try:
            assert one_call(target, "x", val=torch.rand(4)) == "effect"
        finally:
            handle.destroy()


def test_custom_ops() -> None:
    with scoped("fxremat_test") as library:
        library.define("pure(Tensor x) -> Tensor")
        library.define("write(Tensor(a!) x) -> ()")
        library.define("draw(Tensor x) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
        library.define("sly(Tensor x) -> Tensor", tags=(torch.Tag.maybe_aliasing_or_mutating,))
        ops, value = torch.ops.fxremat_test, torch.rand(4)
        assert one_call(ops.pure.default, "x", val=value) == "custom"  # it may not be
        assert one_call(ops.write.default, "x", val=()) == "mutation"
        assert one_call(ops.draw.default, "x", val=value) == "random"
        assert one_call(ops.sly.default, "x", val=value) == "effect"


def test_discrete() -> None:
    assert one_call(aten.topk.default, "x", 2) == "discrete"
    assert one_call(aten.sort.default, "x") == "discrete"
    assert one_call(aten.median.dim, "x", 0) == "discrete"
    assert one_call(aten.max.dim, "x", 0) == ""


def test_size_that_depends_on_data() -> None:
    assert one_call(aten.nonzero.default, "x") == "data-dependent"
    assert one_call(aten.sin.default, "x", unbacked_bindings={"u0": ()}) == "data-dependent"


def test_no_aten_call() -> None:
    assert one_call(torch.sin, "x") == "opaque"


# --- policies ----------------------------------------------------------------------------------


def scoped(space: str) -> Any:
    return torch.library._scoped_library(space, "FRAGMENT")


def block(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).exp().sin().topk(2).values.tanh()


def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    save = op in (aten.mm.default, aten.topk.default)
    return CheckpointPolicy.MUST_SAVE if save else CheckpointPolicy.MUST_RECOMPUTE


def traced(function: Callable[..., Tensor]) -> JointGraph:
    """The joint graph of a function of two matrices, regions marked as torch.compile does it."""
    found: list[JointGraph] = []

    def partition(module: fx.GraphModule, inputs: Any, **kwargs: Any) -> Any:
        found.append(JointGraph.from_module(clean(module), kwargs["num_fwd_outputs"]))
        return default_partition(module, inputs, **kwargs)

    def backend(module: fx.GraphModule, inputs: Any) -> Any:
        return compile_with_aot(module, inputs, lambda m, i: make_boxed_func(m), partition)

    arguments = [torch.rand(4, 4, requires_grad=True) for _ in range(2)]
    torch.compile(function, backend=backend, fullgraph=True)(*arguments)
    return found[0]


@pytest.fixture
def selective() -> JointGraph:
    contexts = functools.partial(create_selective_checkpoint_contexts, policy)

    def function(x: Tensor, w: Tensor) -> Tensor:
        inner: Tensor = checkpoint(block, x, w, use_reentrant=False, context_fn=contexts)
        return inner.sum()

    return traced(function)


def test_must_save(selective: JointGraph) -> None:
    assert verdict(selective, "mm") == "policy"
    # The tag stands on the op and on its items.
    topk = next(n for n in selective.nodes if n.name == "topk")
    only = next(r for r in FIXED if r.name == "policy")
    assert only.matches(selective, topk)
    assert verdict(selective, "exp") == verdict(selective, "sin") == ""


def test_must_recompute(selective: JointGraph) -> None:
    def saveable(name: str) -> bool:
        node = next(n for n in selective.nodes if n.name == name)
        return not unsaveable(selective, node)

    # The derivatives of exp and sin read the results of exp.
    assert not saveable("exp")
    assert not saveable("sin")
    assert saveable("mm")
    assert saveable("getitem")
    assert saveable("tanh"), "what leaves the region is not the region's own"
    assert saveable("sum_1")


def test_plain_checkpoint_is_a_wish_not_a_law() -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        inner: Tensor = checkpoint(block, x, w, use_reentrant=False)
        return inner.sum()

    graph = traced(function)
    tags = {n.meta.get("recompute") for n in graph.nodes if n.name in ("mm", "exp", "tanh")}
    assert tags == {CheckpointPolicy.PREFER_RECOMPUTE}
    for node in graph.nodes:
        if graph.roles[node.name] is Role.OP and node.name != "topk":
            assert fixed(graph, node) == ""
        if graph.storages.get(node.name) == node.name:
            assert unsaveable(graph, node) == ""


# --- what may be saved -------------------------------------------------------------------------


def test_only_tensors_may_be_saved() -> None:
    draw = Sketch(primals_1=torch.rand(4, 4), tangents_1=torch.rand(4))
    draw.call("topk", aten.topk.default, draw["primals_1"], 2)
    graph = draw.done([draw["primals_1"]], [draw["tangents_1"]])
    assert "no tensor" in unsaveable(graph, draw["topk"])
    assert unsaveable(graph, draw["primals_1"]) == ""


def test_first_rule_that_matches_decides() -> None:
    graph = joint("dropout")
    node = next(n for n in graph.nodes if n.name == "native_dropout")
    reasons = [rule.reason for rule in FIXED if rule.matches(graph, node)]
    assert len(reasons) > 1
    assert fixed(graph, node) == reasons[0]


@pytest.mark.parametrize("name", ["pure", "draw"])
def test_a_custom_op_that_is_said_to_be_pure_may_run_again(name: str) -> None:
    """The user vouches for what torch cannot tell, and for nothing else."""
    with scoped("fxremat_test") as library:
        library.define("pure(Tensor x) -> Tensor")
        library.define("draw(Tensor x) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
        draw = Sketch(primals_1=torch.rand(4), tangents_1=torch.rand(4))
        target = getattr(torch.ops.fxremat_test, name).default
        node = draw.call("it", target, draw["primals_1"], val=torch.rand(4))
        graph = draw.done([node], [draw["tangents_1"]])
        assert fixed(graph, node)
        assert (fixed(graph, node, pure=True) == "") == (name == "pure")
