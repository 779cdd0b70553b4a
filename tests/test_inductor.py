"""Inductor as the inner compiler: what its code really holds, and that a budget binds it."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch._inductor.utils import fresh_cache

import fxremat
from fxremat.backends import plan_cache
from fxremat.planning.feedback import ATTEMPTS, Feedback, Round, next_feedback
from tests.marked_programs import marked
from tests.small import BUDGETS, compiled, made, make, measure, step

# Inductor warns of what it does not find on this machine; that is not under test.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(autouse=True)
def _cold(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is taken from a cache."""
    monkeypatch.setattr(plan_cache, "load", lambda key: None)
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


@pytest.mark.parametrize(
    ("name", "budget"),
    [("chain", 0.6), *(pytest.param("transformer", b, marks=pytest.mark.slow) for b in (1.0, 0.6))],
)
def test_what_is_planned_without_compiling_is_near_the_code(name: str, budget: float) -> None:
    model, x = made(name)
    promised = fxremat.plan(model, x, budget=budget, inner="inductor").predicted_peak
    ours = make(budget, inner="inductor")
    compiled(name, ours)
    (plan,) = ours.plans
    assert plan.predicted_peak <= promised <= 1.1 * plan.predicted_peak


def told(limit: int | None, peaks: list[int], *materialized: str) -> list[Feedback]:
    """What is told to each plan of 6,400 bytes whose code holds the peaks; no limit: the smallest.

    Args:
        limit: the budget in bytes.
        peaks: bytes that the code of each round takes.
        materialized: values that the code gives memory, of those that were taken for fused.
    """
    rounds: list[Round] = []
    feedback: Feedback | None = Feedback()
    while feedback is not None:
        peak = peaks[len(rounds)]
        rounds.append(Round(feedback, limit, 6_400, peak, frozenset(materialized)))
        feedback = next_feedback(rounds, limit is None)
    return [r.feedback for r in rounds]


def test_the_margin_grows_faster_than_the_excess() -> None:
    """Fusion may give back the few bytes by which a plan was made smaller, each time."""
    found = told(6_400, ATTEMPTS * [6_401])
    assert [f.margin for f in found] == [0, 1, 101, 201, 601, 1401, 3001]


def test_what_the_code_made_is_not_taken_for_fused_again() -> None:
    exp = frozenset(["exp"])
    found = told(6_400, [7_000, 6_500, 6_300], "exp")
    assert found == [Feedback(), Feedback(0, exp), Feedback(100, exp)]


def test_code_that_takes_far_more_is_compiled_in_another_way() -> None:
    realize = Feedback(realize=True)
    found = told(6_400, [8_000, 6_500, 6_300])
    assert found == [Feedback(), realize, replace(realize, margin=100)]


def test_a_budget_that_is_met_teaches_nothing() -> None:
    assert told(6_400, [6_400], "exp") == [Feedback()]


@pytest.mark.parametrize("second", [90, 110])
def test_the_smallest_peak_is_that_of_the_best_code(second: int) -> None:
    """What the first code taught may help or not; if not, the first one is compiled again."""
    knows = Feedback(0, frozenset(["exp"]))
    found = told(None, [100, second, 100], "exp")
    assert found == ([Feedback(), knows] if second < 100 else [Feedback(), knows, Feedback()])


def test_code_whose_peak_is_not_known_is_taken() -> None:
    assert next_feedback([Round(Feedback(), 6_400, 6_400, None)], smallest=False) is None
    assert next_feedback([Round(Feedback(), None, 6_400, None)], smallest=True) is None


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

    program = marked(fxremat.recompute, 3)
    torch.compiler.reset()
    backend = fxremat.backend(None)
    x, w = torch.randn(64, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)
    torch.compile(program, backend=backend)(x, w).backward()
    (plan,) = backend.plans
    assert plan.recomputed == ("exp_1",)
