"""Planning without running."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fxremat
from benchmarks.llama import llama
from fxremat.base.errors import BudgetError, GraphError, OptionError
from tests.steps import blocks, half


def step_peak(inner: str) -> int:
    model, batch = blocks()
    backend = fxremat.backend(0.5, inner=inner, effort=0)
    torch.compile(model, backend=backend)(batch).backward()
    return backend.plans[0].predicted_peak


def test_the_plan_is_the_one_that_the_backend_makes() -> None:
    model, batch = blocks()
    backend = fxremat.backend(0.5, inner="eager", effort=0)
    torch.compile(model, backend=backend)(batch).backward()
    assert fxremat.plan(model, batch, budget=0.5, inner="eager", effort=0) == backend.plans[0]
    assert all(p.grad is not None for p in model.parameters())  # planning leaves them alone


def test_with_inductor_the_graph_is_the_one_that_the_backend_gets() -> None:
    model, batch = blocks()
    backend = fxremat.backend(0.5, effort=0)
    torch.compile(model, backend=backend)(batch).backward()
    plan = fxremat.plan(model, batch, budget=0.5, effort=0)
    assert plan.graph == backend.plans[0].graph


def test_meta_and_real_tensors_give_one_plan() -> None:
    real = fxremat.plan(*blocks(), budget=0.5, device="h100", inner="eager", effort=0)
    bare = fxremat.plan(*blocks(device="meta"), budget=0.5, device="h100", inner="eager", effort=0)
    assert real == bare


def test_bytes_are_those_of_the_devices_allocator() -> None:
    plan = half()
    assert all(v.nbytes % 512 == 0 for v in plan.context.problem.values)
    assert plan.context.device == "h100"
    here = fxremat.plan(*blocks(), inner="eager", device="cpu", effort=0)
    assert any(v.nbytes % 512 for v in here.context.problem.values)


def test_seven_billion_parameters() -> None:
    """Nothing of the model's size is there; the trace and the plan take seconds."""
    model, args = llama(layers=4)
    tracemalloc.start()
    plan = fxremat.plan(
        model, args, budget=0.5, device="h100", optimizer="AdamW", inner="eager", effort=0
    )
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 200 * 2**20
    assert plan.budget is not None
    assert plan.predicted_peak <= plan.budget
    held = plan.context.resident
    assert held is not None
    parameters = sum(p.numel() for p in model.parameters())
    assert held.parameters >= 2 * parameters > 10**9
    assert held.optimizer >= 2 * held.parameters


def test_memory_leaves_a_budget() -> None:
    model, batch = blocks(rows=4096, device="meta")
    free = fxremat.plan(model, batch, device="h100", optimizer="SGD", inner="eager", effort=0)
    held = free.context.resident
    assert held is not None
    limit = held.during + free.baseline_peak // 2
    plan = fxremat.plan(
        model, batch, memory=limit, device="h100", optimizer="SGD", inner="eager", effort=0
    )
    assert plan.budget == free.baseline_peak // 2
    assert held.total(plan.predicted_peak) <= limit
    assert f"{'step':<12}" in str(plan)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"memory": "1KiB"}, BudgetError, "optimizer and the rest take .* alone"),
        ({"memory": 0.5}, BudgetError, "memory=0.5: not a number of bytes"),
        ({"memory": "junk"}, BudgetError, "memory='junk': not a number of bytes"),
        ({"memory": -1}, BudgetError, "memory=-1: not a number of bytes"),
        ({"memory": "1GiB", "budget": 0.5}, OptionError, "budget and memory were both given"),
        ({"device": "h10"}, OptionError, "did you mean 'h100'"),
        ({"optimizer": "AdamX"}, OptionError, "did you mean 'Adam"),
        ({"kwargs": 0.5}, OptionError, "a budget is given as budget=0.5"),
        ({"efort": 1}, OptionError, "did you mean 'effort'"),
    ],
)
def test_bad_input(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fxremat.plan(*blocks(device="meta"), **{"device": "h100", "inner": "eager", **given})


def test_what_is_no_module_and_what_has_no_gradient_is_refused() -> None:
    with pytest.raises(OptionError, match=r"a function is no nn\.Module"):
        fxremat.plan(blocks, torch.ones(1))  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="nothing in the step needs a gradient"):
        fxremat.plan(nn.Identity(), torch.ones(1), device="h100", inner="eager")


class Named(nn.Module):
    """Takes its input by name."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, *, x: Tensor) -> Tensor:
        made: Tensor = self.linear(x).square().sum()
        return made


def test_arguments_by_name() -> None:
    plan = fxremat.plan(Named(), (), {"x": torch.randn(2, 4)}, device="h100", inner="eager")
    held = plan.context.resident
    assert held is not None
    assert held.inputs == 512
