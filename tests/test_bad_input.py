"""One test for each row of the design's table of bad input: where it stops, with what message."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch._dynamo.exc import BackendCompilerFailed

import fxremat
from fxremat import BudgetError, GraphError, InfeasibleError, OptionError, RewriteError
from fxremat.solver.peak_solver import PeakSolver
from passes.analysis.joint import JointGraph
from passes.split.split import split
from tests import problems


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh())


def run(how: Any) -> torch.Tensor:
    y: torch.Tensor = torch.compile(net(), backend=how)(torch.randn(64, 16))
    return y


def test_an_unknown_option() -> None:
    with pytest.raises(OptionError, match="unknown option 'inr'; did you mean 'inner'"):
        fxremat.backend(0.5, inr="eager")  # type: ignore[call-arg]


def test_an_option_of_the_wrong_type() -> None:
    with pytest.raises(OptionError, match="effort='high': not a whole number of rounds"):
        fxremat.backend(0.5, effort="high")


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (-1, "budget -1: bytes must be positive"),
        (1.5, "budget 1.5: a float is a fraction of the baseline peak and must not exceed 1"),
        ("lots", "budget 'lots': not a size"),
    ],
)
def test_a_budget_that_makes_no_sense(budget: object, message: str) -> None:
    with pytest.raises(BudgetError, match=message):
        fxremat.backend(budget)


def test_a_budget_below_what_any_plan_needs() -> None:
    with pytest.raises(BackendCompilerFailed) as caught:
        run(fxremat.backend(100, inner="eager", effort=0))
    error = caught.value.inner_exception
    assert isinstance(error, BudgetError)
    assert error.asked == 100
    assert error.least is not None
    text = str(error)
    assert "no plan found within 100 bytes" in text
    assert f"the least peak found is {error.least} bytes" in text
    assert "the largest live values are" in text
    assert f"Ask for at least {error.least} bytes" in text


def test_a_budget_below_what_any_plan_needs_with_closest() -> None:
    ours = fxremat.backend(100, inner="eager", effort=0, on_infeasible="closest")
    with pytest.warns(UserWarning, match="no plan found within 100 bytes"):
        run(ours).sum().backward()
    assert ours.plans[0].predicted_peak > 100


def test_a_graph_we_cannot_take() -> None:
    module = fx.symbolic_trace(net())
    with pytest.raises(
        GraphError, match="a call_module of '0'; the pass takes graphs of ATen"
    ) as e:
        JointGraph.from_module(module, 1)
    assert e.value.node == "_0"


def test_rules_that_leave_no_cut() -> None:
    with pytest.raises(InfeasibleError) as caught:
        PeakSolver(problems.conflict()).solve(100)
    path = "\n".join(caught.value.path)
    assert "drop" in path
    assert "random" in path
    assert "symbolic float" in path or "opaque" in path


def test_a_plan_for_another_graph() -> None:
    ours = fxremat.backend(None, inner="eager", effort=0)
    run(ours)
    plan = replace(
        ours.plans[0], backward_schedule=("unheard_of", *ours.plans[0].backward_schedule)
    )
    graph = fx.Graph()
    x = graph.placeholder("primals_1")
    x.meta["val"] = torch.empty(3)
    graph.output((x,))
    joint = JointGraph.from_module(fx.GraphModule(nn.Module(), graph), 1)
    with pytest.raises(RewriteError, match="this graph has no such op") as caught:
        split(joint, plan.backward_schedule, plan.forward)
    assert caught.value.node in (*plan.forward, *plan.backward_schedule)


def test_double_backward_is_refused_as_by_aot_autograd() -> None:
    x = torch.randn(64, 16, requires_grad=True)
    y = torch.compile(net(), backend=fxremat.backend(None, inner="eager", effort=0))(x)
    (grad,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        grad.sum().backward()


def test_retain_graph_gives_the_gradients_again_or_an_error() -> None:
    """The saved tensors are autograd's, so a second backward over a retained graph is exact."""
    x = torch.randn(64, 16, requires_grad=True)
    y = torch.compile(net(), backend=fxremat.backend("min", inner="eager", effort=0))(x).sum()
    (one,) = torch.autograd.grad(y, x, retain_graph=True)
    (two,) = torch.autograd.grad(y, x)
    assert torch.equal(one, two)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(y, x)


@pytest.mark.parametrize("backend", ["fxremat", fxremat.backend(0.5, inner="eager")])
def test_a_mode_of_torch_compile_is_refused(backend: Any) -> None:
    with pytest.raises(Exception, match=r"given mode='max-autotune', which fxremat does not take"):
        torch.compile(net(), backend=backend, mode="max-autotune")(torch.randn(64, 16))


def test_options_beside_a_backend_that_is_made_are_refused() -> None:
    ours = fxremat.backend(0.5, inner="eager")
    with pytest.raises(Exception, match=r"which fxremat does not take; give options to"):
        torch.compile(net(), backend=ours, options={"budget": "0.5"})(torch.randn(64, 16))
