"""Stable text of graphs."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from passes.printer import render

aten = torch.ops.aten


def test_a_traced_graph() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = aten.native_layer_norm(x @ w.t(), [16], None, None, 1e-5)[0]
        return aten.sum(y, [1], dtype=torch.float64), y.to(torch.bfloat16)

    module = make_fx(f, tracing_mode="fake")(torch.ones(4, 8), torch.ones(16, 8))
    norm = "(f32[4, 16], f32[4, 1], f32[4, 1])"
    assert render(module) == (
        "x_1: f32[4, 8] = placeholder\n"
        "w_1: f32[16, 8] = placeholder\n"
        "t: f32[8, 16] = aten.t(w_1)\n"
        "mm: f32[4, 16] = aten.mm(x_1, t)\n"
        f"native_layer_norm: {norm} = aten.native_layer_norm(mm, [16], None, None, 1e-05)\n"
        "getitem: f32[4, 16] = getitem(native_layer_norm, 0)\n"
        "getitem_1: f32[4, 1] = getitem(native_layer_norm, 1)\n"
        "getitem_2: f32[4, 1] = getitem(native_layer_norm, 2)\n"
        "sum_1: f64[4] = aten.sum.dim_IntList(getitem, [1], dtype=f64)\n"
        "_to_copy: bf16[4, 16] = aten._to_copy(getitem, dtype=bf16)\n"
        "return (sum_1, _to_copy)\n"
    )
    assert render(module.graph) == render(module)


def test_symbolic_sizes_are_written_by_name() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.new_zeros(x.shape[0] * 2, 3)

    text = render(make_fx(f, tracing_mode="symbolic")(torch.ones(4, 5)))
    lines = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    size = lines["x_1"].removeprefix("f32[").split(",")[0]
    assert size.isidentifier()
    assert lines["sym_size_int"] == f"SymInt({size}) = aten.sym_size.int(x_1, 0)"
    assert lines["mul"] == f"SymInt(2*{size}) = mul(sym_size_int, 2)"
    assert lines["new_zeros"].startswith(f"f32[2*{size}, 3] = aten.new_zeros(x_1, [mul, 3]")


class Opaque:
    pass


def helper(x: torch.Tensor) -> torch.Tensor:
    return x


def test_no_addresses_and_no_module_paths() -> None:
    graph = Graph()
    x = graph.placeholder("x", default_value=None)
    held = graph.create_node("get_attr", "held")
    args: tuple[Any, ...] = (x, Opaque(), slice(None, 3), {"k": held})
    call = graph.call_function(helper, args, {"f": torch.channels_last})
    method = graph.call_method("sort", (call, -0.0, "s", torch.device("cpu"), torch.strided))
    graph.output([method, None])
    assert render(graph) == (
        "x = placeholder(None)\n"
        "held = get_attr(held)\n"
        "helper = helper(x, <Opaque>, :3:, {k: held}, f=channels_last)\n"
        "sort = call_method[sort](helper, -0.0, 's', cpu, strided)\n"
        "return [sort, None]\n"
    )


def test_names_are_those_of_the_graph_and_the_graph_is_left_alone() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    node = graph.create_node("call_function", aten.mm.default, (x, x), {}, name="odd_name_7")
    graph.output(node)
    module = GraphModule(torch.nn.Module(), graph)
    code = module.code
    assert render(module).splitlines()[1] == "odd_name_7 = aten.mm(x, x)"
    assert module.code == code
    assert render(module) == render(module)
