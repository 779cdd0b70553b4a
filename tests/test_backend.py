from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.exc import BackendCompilerFailed

import fxremat
from fxremat.base.units import format_bytes
from passes.torch_internals import _taken_apart
from tests.small import (
    BUDGETS,
    MODELS,
    Broken,
    assert_same,
    compiled,
    made,
    make,
    measure,
    step,
)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", ["chain", "transformer", "conv"])
def test_steps_equal_eager(name: str, budget: object) -> None:
    model, x = made(name)
    ours = make(budget)
    assert_same(compiled(name, ours), step(model, model, x))
    (plan,) = ours.plans
    if budget != "min":
        assert plan.budget is not None
        assert plan.predicted_peak <= plan.budget
    assert plan.predicted_peak < plan.baseline_peak
    assert plan.recomputed


@pytest.mark.parametrize("budget", [0.7, "min"])
def test_dropout_draws_the_masks_of_the_baseline(budget: object) -> None:
    ours = make(budget)
    assert_same(compiled("dropout", ours), compiled("dropout", make(None)))
    assert ours.plans[0].recomputed


def test_float64_is_exact() -> None:
    model, x = made("transformer")
    model, x = model.double(), x.double()
    theirs = step(model, model, x)
    assert_same(step(model, torch.compile(model, backend=make("min")), x), theirs)


@pytest.fixture(scope="module")
def measured() -> dict[tuple[str, str], tuple[int, int, int]]:
    return measure("eager", *MODELS)


# The masks and the random results, which may not be drawn again, take over half of "dropout".
@pytest.mark.parametrize(
    ("name", "budget"),
    [(n, b) for n in MODELS for b in BUDGETS if (n, b) != ("dropout", 0.5)],
)
def test_measured_peak_is_the_predicted_one(
    measured: dict[tuple[str, str], tuple[int, int, int]], name: str, budget: object
) -> None:
    peak, predicted, limit = measured[name, str(budget)]
    assert abs(peak - predicted) <= 64
    assert limit < 0 or peak <= limit


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_each_graph_has_its_plan() -> None:
    torch.manual_seed(0)
    model, x = Broken(), torch.randn(1024, 64)
    ours = make(0.7)
    assert_same(step(model, torch.compile(model, backend=ours), x), step(model, model, x))
    assert len(ours.plans) == 2


def test_a_copy_is_the_backend_itself() -> None:
    ours = make(0.5)
    assert copy.deepcopy({"backend": ours}) == {"backend": ours}  # as wrappers of compile do


def test_inference_has_no_plan() -> None:
    model, x = made("chain")
    ours = make(0.5)
    run = torch.compile(model, backend=ours)
    with torch.no_grad():
        assert torch.equal(run(x), model(x))
    assert ours.plans == []


def test_budgets_in_bytes_strings_and_fractions_agree() -> None:
    found = []
    half = make(0.5)
    compiled("chain", half)
    limit = half.plans[0].budget
    for budget in (limit, f"{limit}B", "50%", "0.5"):
        torch.compiler.reset()
        ours = make(budget)
        compiled("chain", ours)
        found.append(ours.plans[0])
    assert all(plan == half.plans[0] for plan in found)


def test_the_entry_point_takes_options(caplog: pytest.LogCaptureFixture) -> None:
    model, x = made("chain")
    options: dict[str, Any] = {"budget": 0.5, "inner": "eager", "effort": 0}
    with caplog.at_level(logging.INFO, logger="fxremat"):
        run = torch.compile(model, backend="fxremat", options=options)
        assert_same(step(model, run, x), step(model, model, x))
    assert "values saved" in caplog.text


def test_inner_may_be_a_callable() -> None:
    halves: list[torch.fx.GraphModule] = []

    def inner(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        halves.append(module)
        return module.forward

    model, x = made("chain")
    assert_same(compiled("chain", make(0.5, inner=inner)), step(model, model, x))
    assert len(halves) == 2


def test_steps_repeat() -> None:
    model, x = made("transformer")
    ours = make(0.6)
    run = torch.compile(model, backend=ours)
    first = step(model, run, x)
    first = [t.clone() for t in first]
    for _ in range(2):
        assert_same(step(model, run, x), first)
    assert len(ours.plans) == 1


def test_stages_are_timed() -> None:
    ours = make(0.6)
    compiled("chain", ours)
    timings = ours.timings[0]
    assert {"joint", "costs", "solver", "split"} <= set(timings)
    assert all(seconds >= 0 for seconds in timings.values())


def test_closest_warns_and_takes_the_least() -> None:
    least = make("min")
    compiled("chain", least)
    torch.compiler.reset()
    ours = make(1024, on_infeasible="closest")
    with pytest.warns(UserWarning, match="no plan found within 1024 bytes"):
        compiled("chain", ours)
    assert ours.plans[0].predicted_peak == least.plans[0].predicted_peak
    assert ours.plans[0].budget == 1024


def test_a_budget_below_the_least_tells_both_numbers() -> None:
    with pytest.raises(BackendCompilerFailed) as caught:
        compiled("chain", make(1024))
    error = caught.value.inner_exception
    assert isinstance(error, fxremat.BudgetError)
    assert error.asked == 1024
    assert error.least is not None
    torch.compiler.reset()
    ours = make(error.least)
    compiled("chain", ours)
    assert ours.plans[0].predicted_peak <= error.least


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_inductor_runs_the_halves() -> None:
    model, x = made("chain")
    ours = make(0.6, inner="inductor")
    theirs = step(model, model, x)
    for a, b in zip(compiled("chain", ours), theirs, strict=True):
        torch.testing.assert_close(a, b)
    assert ours.plans[0].predicted_peak <= (ours.plans[0].budget or 0)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_interpolation_is_traced_as_the_op_that_eager_runs(mode: str, dynamic: bool) -> None:
    def up(x: torch.Tensor) -> torch.Tensor:
        y = F.interpolate(x.sin(), scale_factor=2.0, mode=mode)
        return y.sin().sum()

    def gradient(run: Any, batch: int) -> list[torch.Tensor]:
        torch.manual_seed(0)
        x = torch.randn(batch, 3, 8, 8, requires_grad=True)
        loss = run(x)
        loss.backward()
        assert x.grad is not None
        return [loss, x.grad]

    before = {op: set(op.py_kernels) for op in _taken_apart()}
    ours = make("min")
    run = torch.compile(up, backend=ours, dynamic=dynamic)
    for batch in (2, 3):
        for mine, theirs in zip(gradient(run, batch), gradient(up, batch), strict=True):
            assert torch.equal(mine, theirs)
    assert any("upsample" in name for name in ours.plans[0].forward)
    assert before == {op: set(op.py_kernels) for op in _taken_apart()}  # set aside, not lost


@pytest.mark.parametrize(
    ("loss", "target"),
    [
        (F.multilabel_margin_loss, [[3, 0, -1, 1], [0, -1, 1, 2]]),
        (F.multi_margin_loss, [3, 0]),
    ],
)
def test_losses_that_torch_takes_apart_while_it_traces(loss: Any, target: list[Any]) -> None:
    """Their parts give other results, for padded targets wrong ones."""
    torch.compiler.reset()
    found = []
    run = torch.compile(lambda x, t: loss(x * 2, t), backend=fxremat.backend(inner="eager"))
    plain: Callable[..., Any] = lambda x, t: loss(x * 2, t)  # noqa: E731
    for used in (plain, run):
        x = torch.linspace(-1, 2, 8).view(2, 4).requires_grad_()
        result = used(x, torch.tensor(target))
        result.backward()
        found.append((result.detach(), x.grad))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


def test_a_backend_that_is_not_called_says_so() -> None:
    torch.compiler.reset()
    run = torch.compile(lambda x: x.sin().sum(), backend=fxremat.backend)
    with pytest.raises(BackendCompilerFailed, match=r"write backend=fxremat.backend\(\)"):
        run(torch.ones(3, requires_grad=True))


def test_plans_print_as_a_table() -> None:
    torch.compiler.reset()
    backend = fxremat.backend(inner="eager")
    run = torch.compile(lambda x: x.sin().cos().sum(), backend=backend)
    run(torch.ones(256, requires_grad=True)).backward()
    head, row = str(backend.plans).splitlines()
    assert head.split() == ["graph", "peak", "baseline", "budget", "time", "saved", "recomputed"]
    peak = format_bytes(backend.plans[0].predicted_peak)
    assert row.split()[:3] == ["1", *peak.split()]
    assert backend.plans._repr_html_().startswith("<table>")
