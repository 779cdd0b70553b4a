"""Inductor as the inner compiler: what its code really holds, and that a budget binds it."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._inductor.utils import fresh_cache

import fxremat
from fxremat import records
from fxremat.inductor import ATTEMPTS, Attempt
from fxremat.options import Options
from tests.small import BUDGETS, compiled, made, make, measure, step

# Inductor warns of what it does not find on this machine; that is not under test.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(autouse=True)
def _cold(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is taken from a cache."""
    monkeypatch.setattr(records, "load", lambda key: None)
    with fresh_cache():
        yield


@pytest.mark.parametrize(
    "name",
    [
        "conv",
        pytest.param("chain", marks=pytest.mark.slow),
        pytest.param("transformer", marks=pytest.mark.slow),
    ],
)
def test_the_replayed_code_tells_the_peak(name: str) -> None:
    found = measure("inductor", name)
    assert len(found) == len(BUDGETS)
    for peak, predicted, limit in found.values():
        assert peak - 64 <= predicted <= 1.15 * peak
        assert limit < 0 or peak <= limit


def test_the_margin_grows_faster_than_the_excess(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fusion may give back the few bytes by which a plan was made smaller, each time."""
    plan = SimpleNamespace(plan=SimpleNamespace(budget=6_400), workspaces={})

    def run(self: Attempt, *_: Any) -> bool:
        self.planned = plan  # type: ignore[assignment]
        return False

    monkeypatch.setattr("fxremat.inductor.key_of", lambda *_: None)
    monkeypatch.setattr(Attempt, "_run_inductor", run)
    monkeypatch.setattr(Attempt, "_peak", lambda self: 6_401)
    monkeypatch.setattr(Attempt, "_correct", lambda self, peak: None)
    attempt, margins = Attempt(Options.parse(6_400)), []
    empty = fx.GraphModule({}, fx.Graph())
    for _ in range(ATTEMPTS - 1):
        assert not attempt.compile(empty, [])
        margins.append(attempt._margin)
    assert margins == [1, 101, 501]
    with pytest.raises(fxremat.BudgetError, match="needs 6401 bytes"):
        attempt.compile(empty, [])


def test_code_above_the_budget_is_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first code is made to look too big, so that the second plan must keep a margin."""
    from passes.inductor import Compiled

    real = Compiled.peaks
    calls: list[Compiled] = []

    def peaks(self: Compiled, handed_over: dict[str, int]) -> tuple[int, int] | None:
        found = real(self, handed_over)
        assert found is not None
        first = not calls or calls[0] is self
        calls.append(self)
        return (2 * found[0], 2 * found[1]) if first else found

    monkeypatch.setattr(Compiled, "peaks", peaks)
    model, x = made("chain")
    ours = make(0.6, inner="inductor")
    torch.testing.assert_close(compiled("chain", ours), step(model, model, x))
    (plan,) = ours.plans
    assert len({id(c) for c in calls}) == 2
    assert plan.budget is not None
    assert plan.predicted_peak <= plan.budget


@pytest.mark.slow
def test_a_budget_that_no_code_meets_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from passes.inductor import Compiled

    monkeypatch.setattr(Compiled, "peaks", lambda self, handed_over: (2**40, 2**40))
    model, x = made("chain")
    run = torch.compile(model, backend=make(0.6, inner="inductor"))
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught:
        run(x)
    error = caught.value.inner_exception
    assert isinstance(error, fxremat.BudgetError)
    assert f"the last of {ATTEMPTS} needs {error.least} bytes" in str(error)


def test_marks_are_heeded_under_inductor() -> None:
    """Inductor drops aliases, those that carry a mark among them, before the graph is split."""

    def program(x: Tensor, w: Tensor) -> Tensor:
        for at in range(3):
            x = (x @ w).exp()
            x = fxremat.recompute(x) if at == 1 else x
            x = x.sin()
        return x.sum()

    torch.compiler.reset()
    backend = fxremat.backend(None)
    x, w = torch.randn(64, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)
    torch.compile(program, backend=backend)(x, w).backward()
    (plan,) = backend.plans
    assert plan.recomputed == ("exp_1",)
