"""Forms in which an op may run again: the same results, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, fx

from passes.analysis.joint import JointGraph
from passes.recompute.forms import Form, rerun_form
from tests.graphs import Sketch, joint

aten = torch.ops.aten
NORM = "_native_batch_norm_legit_functional"


def node(graph: JointGraph, name: str) -> fx.Node:
    return next(n for n in graph.nodes if n.name == name)


def values_of(form: Form, given: dict[str, Tensor]) -> list[Any]:
    return [given[a.name] if isinstance(a, fx.Node) else a for a in form.args]


@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (8, 3), (2, 3, 5)])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_is_the_same_bit_for_bit(shape: tuple[int, ...], affine: bool) -> None:
    given = {"primals_1": torch.randn(shape)}
    given |= {f"primals_{i}": torch.rand(3) + 0.5 for i in (2, 3, 4, 5)}
    draw = Sketch(**given, tangents_1=torch.rand(shape))
    parameters = [draw["primals_2"], draw["primals_3"]] if affine else [None, None]
    buffers = [draw["primals_4"], draw["primals_5"]]
    target = aten._native_batch_norm_legit_functional.default
    call = draw.call("norm", target, draw["primals_1"], *parameters, *buffers, True, 0.1, 1e-5)
    form = rerun_form(draw.done([draw["primals_1"]], [draw["tangents_1"]]), call)
    assert form is not None
    again = form.target(*values_of(form, given))
    assert len(again) == form.results == 3
    assert all(torch.equal(a, b) for a, b in zip(again, call.meta["val"], strict=False))


def test_form_reads_no_statistics() -> None:
    form = rerun_form(joint("batch_norm"), node(joint("batch_norm"), NORM))
    assert form is not None
    read = [a.name for a in form.args if isinstance(a, fx.Node)]
    assert read == ["sin", "primals_2", "primals_3"]


def test_no_form_where_the_backward_reads_the_statistics() -> None:
    graph = joint("batch_norm", cleaned=False)
    assert rerun_form(graph, node(graph, NORM)) is None


def test_no_form_in_evaluation() -> None:
    given = {f"primals_{i}": torch.rand(3) for i in (2, 3, 4, 5)}
    draw = Sketch(primals_1=torch.rand(8, 3), **given, tangents_1=torch.rand(8, 3))
    names = ["primals_1", *given]
    target = aten._native_batch_norm_legit_functional.default
    call = draw.call("norm", target, *(draw[n] for n in names), False, 0.1, 1e-5)
    graph = draw.done([draw["primals_1"]], [draw["tangents_1"]])
    assert rerun_form(graph, call) is None


@pytest.mark.parametrize("name", ["sin", "relu", "copy_", "native_batch_norm_backward"])
def test_other_ops_have_no_form(name: str) -> None:
    assert rerun_form(joint("batch_norm"), node(joint("batch_norm"), name)) is None
