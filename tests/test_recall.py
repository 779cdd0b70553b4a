"""Plans as files: written, read, applied again, refused for other graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.exc import BackendCompilerFailed

import fxremat
from fxremat.base.errors import OptionError, RewriteError
from fxremat.plans.plan import Plan
from tests.steps import blocks, half


def trained(backend: Any, model: nn.Module, batch: Tensor) -> list[Tensor]:
    torch.compiler.reset()
    model.zero_grad()
    torch.compile(model, backend=backend)(batch).backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("inner", ["eager", "inductor"])
def test_a_plan_from_a_file_is_applied_as_it_is(inner: str, tmp_path: Path) -> None:
    model, batch = blocks()
    first = fxremat.backend(0.5, inner=inner, effort=0)
    wanted = trained(first, model, batch)
    path = tmp_path / "plan.json"
    first.plans[0].save(path)
    second = fxremat.backend(plan=path, inner=inner)
    assert [g.tolist() for g in trained(second, model, batch)] == [g.tolist() for g in wanted]
    assert second.plans[0].backward_schedule == first.plans[0].backward_schedule
    assert second.plans[0].predicted_peak == first.plans[0].predicted_peak
    assert second.plans[0].budget == first.plans[0].budget


def test_a_plan_made_without_running_is_applied() -> None:
    model, batch = blocks()
    plan = fxremat.plan(model, batch, budget=0.5, inner="eager", effort=0)
    backend = fxremat.backend(plan=plan, inner="eager")
    trained(backend, model, batch)
    assert backend.plans == [plan]


# Dynamo looks at the gradient of what goes from one graph to the next.
@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_several_graphs_take_each_its_own() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(16, 16), nn.Linear(16, 8)

        def forward(self, x: Tensor) -> Tensor:
            y = self.one(x).tanh().sin()
            torch._dynamo.graph_break()
            made: Tensor = self.two(y).tanh().square().sum()
            return made

    model, batch = Broken(), torch.randn(32, 16)
    first = fxremat.backend("min", inner="eager")
    trained(first, model, batch)
    assert len(first.plans) == 2
    second = fxremat.backend(plan=first.plans[::-1], inner="eager")
    trained(second, model, batch)
    assert [p.backward_schedule for p in second.plans] == [p.backward_schedule for p in first.plans]


class Other(nn.Module):
    """Blocks of another kind."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(16, 16), function

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.function(self.linear(x)).square().mean()
        return made


@pytest.mark.parametrize(
    ("made_for", "used_for", "message"),
    [
        (torch.tanh, torch.sigmoid, "tanh: .*the plan runs tanh, which the graph lacks"),
        (torch.relu, lambda x: torch.relu(x).sin(), "sin: .*the graph has sin, which the plan"),
        (lambda x: x * 2, lambda x: x * 3, "same names, but other sizes, dtypes or arguments"),
    ],
)
def test_another_graph_is_refused(made_for: Any, used_for: Any, message: str) -> None:
    batch = torch.randn(4, 16)
    plan = fxremat.plan(Other(made_for), batch, inner="eager")
    backend = fxremat.backend(plan=plan, inner="eager")
    with pytest.raises(BackendCompilerFailed) as caught:
        trained(backend, Other(used_for), batch)
    error = caught.value.inner_exception
    assert isinstance(error, RewriteError)
    with pytest.raises(RewriteError, match=message):
        raise error
    assert backend.plans == []


def test_other_sizes_are_refused() -> None:
    model, batch = blocks()
    plan = fxremat.plan(model, batch, budget=0.5, inner="eager", effort=0)
    with pytest.raises(BackendCompilerFailed, match="other sizes, dtypes or arguments"):
        trained(fxremat.backend(plan=plan, inner="eager"), *blocks(rows=32))


def test_files_that_are_none(tmp_path: Path) -> None:
    missing, odd = tmp_path / "missing.json", tmp_path / "odd.json"
    odd.write_text("{}")
    with pytest.raises(OptionError, match=r"missing\.json: No such file"):
        fxremat.backend(plan=missing)
    with pytest.raises(OptionError, match=r"odd\.json: not a plan of format"):
        fxremat.backend(plan=str(odd))
    with pytest.raises(OptionError, match="a int is no plan"):
        fxremat.backend(plan=3)
    with pytest.raises(OptionError, match="no plan in it"):
        fxremat.backend(plan=[])
    with pytest.raises(OptionError, match="budget and plan were given"):
        fxremat.backend(0.5, plan=half())
    with pytest.raises(OptionError, match=r"cannot be written \(No such file or directory\)"):
        half().save(tmp_path / "nowhere" / "plan.json")


def test_a_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")
    half().save(path)
    assert Plan.load(path) == half()
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]


def test_a_broken_detail_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(half().to_json().replace('"origins"', '"origin"'))
    with pytest.raises(OptionError, match="not the context of a plan"):
        Plan.load(path)
