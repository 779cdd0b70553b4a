"""Costs against figures worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from fxremat.base.errors import CostError
from fxremat.costs import counts
from fxremat.costs.devices import DeviceProfile
from fxremat.costs.model import CostModel, NodeCost
from fxremat.costs.tensor_meta import GUESS, signature, storage_bytes, unbounded

aten = torch.ops.aten
Mode = Literal["fake", "symbolic"]
PROFILE = DeviceProfile("round", (("float32", 1e9), ("bfloat16", 4e9)), 1e8, 1e-3)


def traced(run: Callable[..., Any], *args: torch.Tensor, mode: Mode = "fake") -> Graph:
    return make_fx(run, tracing_mode=mode)(*args).graph


def node_cost(node: Node, profile: DeviceProfile) -> NodeCost:
    return CostModel(profile).cost(node)


def only(graph: Graph, packet: Any) -> Node:
    found: list[Node] = [
        n for n in graph.nodes if getattr(n.target, "overloadpacket", None) is packet
    ]
    assert len(found) == 1, graph
    return found[0]


def test_matmul() -> None:
    node = only(traced(torch.mm, torch.ones(8, 16), torch.ones(16, 4)), aten.mm)
    flops, moved = 2 * 8 * 16 * 4, 4 * (8 * 16 + 16 * 4 + 8 * 4)
    assert node_cost(node, PROFILE) == NodeCost(flops, moved, moved / 1e8 + 1e-3)


def test_seconds_are_the_larger_of_arithmetic_and_traffic_at_the_rate_of_the_dtype() -> None:
    ones = torch.ones(512, 512, dtype=torch.bfloat16)
    cost = node_cost(only(traced(torch.mm, ones, ones.clone()), aten.mm), PROFILE)
    assert cost.flops / 4e9 > cost.bytes_moved / 1e8
    assert cost.seconds == cost.flops / 4e9 + 1e-3


def test_addmm_bmm_baddbmm_mv() -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        one = aten.addmm(x[0, 0], x[0], y[0])
        return one, aten.bmm(x, y), aten.baddbmm(one, x, y), aten.mv(x[0], y[0, :, 0])

    graph = traced(run, torch.ones(3, 5, 5), torch.ones(3, 5, 5))
    found = {p: node_cost(only(graph, p), PROFILE).flops for p in (aten.addmm, aten.mv, aten.bmm)}
    assert found == {aten.addmm: 250, aten.mv: 50, aten.bmm: 750}
    assert node_cost(only(graph, aten.baddbmm), PROFILE).flops == 750


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_convolution(groups: int) -> None:
    x, w = torch.ones(2, 4, 9, 9), torch.ones(8, 4 // groups, 3, 3)
    node = only(
        traced(lambda x, w: torch.conv2d(x, w, padding=1, stride=2, groups=groups), x, w),
        aten.convolution,
    )
    cost = node_cost(node, PROFILE)
    assert cost.flops == 2 * (2 * 8 * 5 * 5) * (4 // groups * 3 * 3)
    assert cost.bytes_moved == 4 * (x.numel() + w.numel() + 2 * 8 * 5 * 5)


@pytest.mark.parametrize("mask", [[True, True, True], [False, True, True], [True, False, False]])
@pytest.mark.parametrize("groups", [1, 4])
def test_convolution_backward_counts_the_gradients_that_are_wanted(
    mask: list[bool], groups: int
) -> None:
    x, w, grad = torch.ones(2, 4, 9, 9), torch.ones(8, 4 // groups, 3, 3), torch.ones(2, 8, 9, 9)

    def run(grad: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
        more = ([8], [1, 1], [1, 1], [1, 1], False, [0, 0], groups, mask)
        return aten.convolution_backward(grad, x, w, *more)

    cost = node_cost(only(traced(run, grad, x, w), aten.convolution_backward), PROFILE)
    assert cost.flops == sum(mask[:2]) * 2 * (2 * 8 * 9 * 9) * (4 // groups * 3 * 3)
    sizes = (x.numel(), w.numel(), 8)
    made = sum(size for size, wanted in zip(sizes, mask, strict=True) if wanted)
    assert cost.bytes_moved == 4 * (grad.numel() + x.numel() + w.numel() + made)


def test_attention_on_cpu_and_its_backward() -> None:
    batch, heads, length, width = 2, 3, 16, 8

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        forward = aten._scaled_dot_product_flash_attention_for_cpu
        out, logsumexp = forward(q, k, v, 0.0, True)
        backward = aten._scaled_dot_product_flash_attention_for_cpu_backward
        return backward(out, q, k, v, out, logsumexp, 0.0, True)

    q = torch.ones(batch, heads, length, width)
    graph = traced(run, q, q.clone(), q.clone())
    matmul = 2 * batch * heads * length * length * width
    forward = only(graph, aten._scaled_dot_product_flash_attention_for_cpu)
    assert node_cost(forward, PROFILE).flops == 2 * matmul
    backward = only(graph, aten._scaled_dot_product_flash_attention_for_cpu_backward)
    assert node_cost(backward, PROFILE).flops == 5 * matmul


def test_formulas_stay_ours() -> None:
    registry = torch.utils.flop_counter.flop_registry
    assert aten._scaled_dot_product_flash_attention_for_cpu not in registry
    assert registry[aten.convolution_backward] is not counts.FORMULAS[aten.convolution_backward]


def test_ops_without_a_formula_say_so_and_pure_moves_do_not() -> None:
    graph = traced(lambda x: (x.sin(), x.clone()), torch.ones(10))
    sin, clone = (node_cost(only(graph, p), PROFILE) for p in (aten.sin, aten.clone))
    assert (sin.flops, sin.bytes_moved) == (0, 80)
    assert (clone.flops, clone.bytes_moved) == (0, 80)


@pytest.mark.parametrize(
    ("run", "packet", "moved"),
    [
        (lambda x: x * x, aten.mul, 2 * 4000),
        (lambda x: aten.mm(x.view(25, 40).t(), x.view(25, 40)), aten.mm, 4000 + 6400),
        (lambda x: x[:10] * x[10:20], aten.mul, 3 * 40),
        (lambda x: x + x[:1].expand(1000), aten.add, 2 * 4000 + 4),
        (torch.zeros_like, aten.zeros_like, 4000),
        (torch.empty_like, aten.empty_like, 0),
        (lambda x: x[torch.zeros(5, dtype=torch.int64)], aten.index, 20 + 40 + 20),
    ],
)
def test_bytes_are_counted_once_a_part_of_a_storage(
    run: Callable[..., Any], packet: Any, moved: int
) -> None:
    assert node_cost(only(traced(run, torch.ones(1000)), packet), PROFILE).bytes_moved == moved


def test_views_items_and_placeholders_are_free() -> None:
    def run(x: torch.Tensor) -> Any:
        return aten._unsafe_view(x, [20]), x.t(), x.expand(3, 4, 5), torch.var_mean(x)[0]

    graph = traced(run, torch.ones(4, 5))
    work = [n.target for n in graph.nodes if node_cost(n, PROFILE).seconds]
    assert work == [aten.var_mean.correction]


def test_draws_are_a_ceiling_of_their_own() -> None:
    """Where numbers are drawn one after the other, that is what takes the time."""

    def run(x: torch.Tensor) -> Any:
        return x.sin(), torch.nn.functional.dropout(x, 0.5), torch.nn.functional.dropout(x, 0.0)

    graph = traced(run, torch.ones(40, 50))
    slow = replace(PROFILE, draws=1e4)
    for node in (n for n in graph.nodes if n.op == "call_function"):
        drawn = node.target is aten.bernoulli_.float or "dropout" in str(node.target)
        before, now = node_cost(node, PROFILE), node_cost(node, slow)
        want = 2_000 / 1e4 + PROFILE.launch if drawn else before.seconds
        assert now.seconds == pytest.approx(want)
    assert any(node_cost(n, slow).seconds > 0.2 for n in graph.nodes)
    with pytest.raises(ValueError, match="draws > 0"):
        replace(PROFILE, draws=0.0)


def test_storage_bytes_round_up_and_see_the_whole_storage() -> None:
    with FakeTensorMode():
        base = torch.empty(130)
        assert storage_bytes(base[:3], 1) == 520
        assert storage_bytes(base[:3], 512) == 1024
        assert storage_bytes(torch.empty(0), 512) == 0


def test_equal_nodes_are_costed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = traced(lambda x: x.sin().sin().sin(), torch.ones(4))
    calls: list[Node] = []
    monkeypatch.setattr("fxremat.costs.model.counts.flops", calls.append)
    model = CostModel(PROFILE)
    assert len({model.cost(n) for n in graph.nodes if n.op == "call_function"}) == 1
    assert len(calls) == 1


def test_kind_measured_reads_timings_and_falls_back() -> None:
    graph = traced(lambda x: (x.sin(), x.cos()), torch.ones(4))
    sin, cos = only(graph, aten.sin), only(graph, aten.cos)
    model = CostModel(PROFILE, "measured", timings={signature(sin): 7.0})
    assert model.cost(sin).seconds == 7.0
    assert model.cost(cos) == node_cost(cos, PROFILE)


def test_kind_callable() -> None:
    sin = only(traced(torch.sin, torch.ones(4)), aten.sin)
    assert CostModel(PROFILE, lambda _: 3.0).cost(sin).seconds == 3.0
    for wrong in (-1.0, math.nan, None):
        with pytest.raises(CostError, match=r"sin: the cost function returned .* it must give"):
            CostModel(PROFILE, lambda _, w=wrong: w).cost(sin)  # type: ignore[misc]


def test_symbolic_sizes_count_by_their_hint_and_add_no_guard() -> None:
    graph = traced(lambda x, y: (x @ y).sin(), torch.ones(6, 7), torch.ones(7, 5), mode="symbolic")
    node = only(graph, aten.mm)
    shape_env = node.meta["val"].fake_mode.shape_env
    before = len(shape_env.guards)
    assert node_cost(node, PROFILE).flops == 2 * 6 * 7 * 5
    assert node_cost(node, PROFILE).bytes_moved == 4 * (42 + 35 + 30)
    assert storage_bytes(node.meta["val"]) == 120
    assert len(shape_env.guards) == before


def test_a_size_that_depends_on_data_counts_with_its_bound() -> None:
    shape_env = ShapeEnv()
    graph = Graph()
    x = graph.placeholder("x")
    sin = graph.call_function(aten.sin.default, (x,))
    with FakeTensorMode(shape_env=shape_env):
        size = shape_env.create_unbacked_symint()
        free = torch.empty(size, 4)
        assert unbounded(free)
        assert storage_bytes(free) == 16 * GUESS
        torch._check(size <= 100)
        x.meta["val"] = torch.empty(size, 4)
        sin.meta["val"] = torch.empty(size, 4)
    assert not unbounded(x.meta["val"])
    assert storage_bytes(x.meta["val"]) == 16 * 100
    assert node_cost(sin, PROFILE).bytes_moved == 2 * 16 * 100


def test_a_result_of_a_size_that_depends_on_data_counts_with_its_bound() -> None:
    """At most all of the four elements are nonzero."""
    with FakeTensorMode(shape_env=ShapeEnv()):
        found = torch.ones(4).nonzero()
    assert storage_bytes(found) == 4 * 8
