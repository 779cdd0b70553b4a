"""Which values are taken for fused, on graphs drawn by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fxremat.base.errors import RewriteError
from fxremat.distributed.agreement import _taken
from fxremat.frontend.analyze import prepare
from fxremat.frontend.build import Sizing, formulate
from fxremat.frontend.fusion import SHARE, fused_values
from fxremat.options import Options
from fxremat.planning.planner import planner_of, reader_of
from fxremat.planning.reapply import recall
from fxremat.problem.types import FUSED
from fxremat.solver.pareto import Point
from fxremat.solver.seeds.cuts import baseline
from passes.analysis.joint import JointGraph, Role
from passes.phases import Phase
from tests.graphs import Sketch

aten = torch.ops.aten
SIZING = Sizing(
    seconds=lambda node: 1.0,
    flops=lambda node: 0,
    storage=lambda tensor: int(tensor.untyped_storage().nbytes()),
    workspace=lambda node: 0,
)


def fused(graph: JointGraph, *apart: str) -> dict[str, tuple[str, ...]]:
    return fused_values(graph, SIZING.storage, apart)


def sketch(**more: Tensor) -> Sketch:
    """``mm = x @ w`` of 16 x 16 floats, from which the rest is drawn."""
    square = torch.rand(16, 16)
    draw = Sketch(primals_1=square, primals_2=square.clone(), tangents_1=square.clone(), **more)
    draw.call("mm", aten.mm.default, draw["primals_1"], draw["primals_2"])
    return draw


def gelu_like() -> JointGraph:
    """mm -> half, exp -> mul -> mm_1; the backward computes from mm what it needs."""
    draw = sketch()
    draw.call("half", aten.mul.Tensor, draw["mm"], 0.5)
    draw.call("exp", aten.exp.default, draw["mm"])
    draw.call("mul", aten.mul.Tensor, draw["half"], draw["exp"])
    draw.call("mm_1", aten.mm.default, draw["mul"], draw["primals_2"])
    draw.call("cos", aten.cos.default, draw["mm"])
    draw.call("grad", aten.mul.Tensor, draw["tangents_1"], draw["cos"])
    return draw.done([draw["mm_1"]], [draw["grad"]])


def test_elementwise_ops_between_products_take_no_memory() -> None:
    graph = gelu_like()
    assert graph.phases["cos"] is Phase.DEFERRABLE
    assert fused(graph) == {"half": ("mm",), "exp": ("mm",), "cos": ("mm",)}  # a product reads mul


def test_what_the_user_decides_about_is_left_alone() -> None:
    assert fused(gelu_like(), "exp") == {"half": ("mm",), "cos": ("mm",)}


def test_readers_read_what_a_fused_value_is_made_of() -> None:
    graph = gelu_like()
    problem = formulate(graph, SIZING, fused=fused(graph))
    values = {v.name: v for v in problem.values}
    assert (values["exp"].nbytes, values["exp"].fused) == (0, True)
    assert (values["mul"].nbytes, values["mul"].unsaveable) == (1024, "")
    (reader,) = [op for op in problem.ops if op.name == "mul"]
    assert [problem.values[v].name for v in reader.inputs] == ["half", "mm", "exp"]


def test_a_forward_value_that_the_backward_reads_may_be_saved() -> None:
    draw = sketch()
    draw.call("exp", aten.exp.default, draw["mm"])
    draw.call("sin", aten.sin.default, draw["exp"])
    draw.call("mm_1", aten.mm.default, draw["sin"], draw["primals_2"])
    draw.call("grad", aten.mul.Tensor, draw["tangents_1"], draw["exp"])
    assert fused(draw.done([draw["mm_1"]], [draw["grad"]])) == {}


def test_a_sum_of_two_large_values_is_made_in_the_forward() -> None:
    draw = sketch()
    draw.call("mm_1", aten.mm.default, draw["mm"], draw["primals_2"])
    draw.call("add", aten.add.Tensor, draw["mm"], draw["mm_1"])
    draw.call("sin", aten.sin.default, draw["add"])
    draw.call("mm_2", aten.mm.default, draw["sin"], draw["primals_2"])
    graph = draw.done([draw["mm_2"]], [draw["tangents_1"]])
    assert fused(graph) == {}


def test_a_mean_of_rows_is_small_beside_its_value() -> None:
    """As in a normalization: x - mean(x) is a function of x and of something small."""
    draw = sketch()
    draw.call("mean", aten.mean.dim, draw["mm"], [1], True)
    draw.call("sub", aten.sub.Tensor, draw["mm"], draw["mean"])
    draw.call("scaled", aten.mul.Tensor, draw["sub"], draw["primals_1"])
    draw.call("mm_1", aten.mm.default, draw["scaled"], draw["primals_2"])
    graph = draw.done([draw["mm_1"]], [draw["tangents_1"]])
    assert fused(graph) == {"sub": ("mm", "mean")}


def test_a_mask_is_smaller_than_what_it_is_made_of() -> None:
    draw = sketch()
    draw.call("mask", aten.gt.Scalar, draw["mm"], 0.5)
    draw.call("kept", aten.where.self, draw["mask"], draw["primals_1"], draw["primals_2"])
    draw.call("mm_1", aten.mm.default, draw["kept"], draw["primals_2"])
    assert fused(draw.done([draw["mm_1"]], [draw["tangents_1"]])) == {}


def products_of_tangents(readers: int) -> JointGraph:
    """In the backward: g1 * g2, read by one or two reductions."""
    draw = sketch()
    draw.call("mm_1", aten.mm.default, draw["tangents_1"], draw["primals_1"])
    draw.call("mm_2", aten.mm.default, draw["tangents_1"], draw["primals_2"])
    draw.call("both", aten.mul.Tensor, draw["mm_1"], draw["mm_2"])
    for number in range(readers):
        draw.call(f"sum_{number}", aten.sum.dim_IntList, draw["both"], [number])
    graph = draw.done([draw["mm"]], [draw[f"sum_{n}"] for n in range(readers)])
    assert graph.phases["both"] is Phase.BACKWARD
    return graph


def test_in_the_backward_one_reader_may_compute_from_several_values() -> None:
    assert fused(products_of_tangents(1)) == {"both": ("mm_1", "mm_2")}
    assert fused(products_of_tangents(2)) == {}


def test_what_is_returned_drawn_or_overwritten_is_made() -> None:
    draw = sketch()
    draw.call("exp", aten.exp.default, draw["mm"])
    draw.call("rand", aten.rand_like.default, draw["mm"])
    draw.call("sin", aten.sin.default, draw["mm"])
    draw.call("copy_", aten.copy_.default, draw["sin"], draw["mm"])
    draw.call("out", aten.cos.default, draw["rand"])
    draw.call("more", aten.cos.default, draw["exp"])
    draw.call("last", aten.cos.default, draw["sin"])
    outputs = [draw[n] for n in ("exp", "out", "more", "last")]
    graph = draw.done(outputs, [draw["tangents_1"]])
    assert graph.roles["copy_"] is Role.OP
    assert fused(graph) == {}


def test_a_plan_that_saves_what_is_fused_here_can_be_read() -> None:
    """Another rank may have learned from its code that a value takes memory after all."""
    ready = prepare(gelu_like().module, 1, Options.parse(None, inner="inductor"))
    plain = ready.unfused()
    ops = {op.name: index for index, op in enumerate(plain.ops)}
    order = [ops[name] for name in ("mul", "cos", "grad", "output")]
    plan = reader_of(ready).plan(Point.of(plain, order), None)
    assert {"half", "exp"} <= {value.name for value in plan.saved}
    with pytest.raises(RewriteError, match=f"half may not be saved: {FUSED}"):
        recall(planner_of(ready), [plan])
    taken = _taken(ready, plan.parts, 0)
    assert (taken.backward_schedule, taken.predicted_peak) == (
        plan.backward_schedule,
        plan.predicted_peak,
    )


def test_a_plan_that_saves_what_a_region_has_no_room_for_here_can_be_read() -> None:
    """Which values a region leaves out depends on times, and another rank measures others."""
    options = Options.parse(None, inner="eager", regions={"*": "min"})
    ready = prepare(gelu_like().module, 1, options)
    plain = ready.unfused()
    plan = reader_of(ready).plan(Point.of(plain, baseline(plain)), None)
    assert plan.saved
    with pytest.raises(RewriteError, match="the budget of the region"):
        recall(planner_of(ready), [plan])
    theirs = replace(plan, baseline_peak=plan.baseline_peak - 8, floor=plan.floor + 8)
    taken = _taken(ready, theirs.parts, 0)
    assert taken == theirs


def test_values_apart_take_memory_and_all_of_their_time() -> None:
    options = Options.parse(None, inner="inductor")
    found = [
        prepare(gelu_like().module, 1, options, materialized=apart).context.problem
        for apart in ((), ("half",))
    ]
    (fused, apart) = ({v.name: v for v in problem.values}["half"] for problem in found)
    assert (fused.nbytes, apart.nbytes) == (0, 1024)
    (little, all_of_it) = (
        next(op.seconds for op in problem.ops if op.name == "half") for problem in found
    )
    assert little == pytest.approx(SHARE * all_of_it)


def test_what_may_not_run_again_is_left_alone() -> None:
    options = Options.parse(None, inner="inductor", policy={"aten.exp.default": "save"})
    ready = prepare(gelu_like().module, 1, options)
    values = {v.name: v.nbytes for v in ready.context.problem.values}
    assert (values["half"], values["exp"]) == (0, 1024)
