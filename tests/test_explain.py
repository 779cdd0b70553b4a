"""Why a value is saved or recomputed; what else there could be."""

from __future__ import annotations

import math

import pytest

import fxremat
from fxremat.base.errors import OptionError
from fxremat.base.units import format_seconds
from fxremat.inspect.explain import Explainer
from fxremat.inspect.step import Choice
from fxremat.planning.planner import Planner
from fxremat.plans.plan import Plan
from fxremat.problem.context import Context
from fxremat.problem.types import Problem
from fxremat.solver.pareto import Point
from fxremat.solver.seeds.cuts import just_in_time
from tests.problems import chain, held, nothing_needed, random_op, unsaveable
from tests.steps import half


def explained(problem: Problem, limit: int | None = None) -> Explainer:
    """What there is to say of the best plan within a limit, or with no limit."""
    planner = Planner(Context(problem, {}), "toy")
    point = planner.solver.baseline if limit is None else planner.solver.solve(limit)
    assert point is not None
    return Explainer(planner.plan(point, limit))


def saving(problem: Problem, *names: str) -> Explainer:
    """What there is to say of the plan that saves these and rebuilds the rest once."""
    kept = {i for i, v in enumerate(problem.values) if v.name in names}
    point = Point.of(problem, just_in_time(problem, kept))
    return Explainer(Planner(Context(problem, {}), "toy").plan(point, None))


def test_a_saved_value_by_hand() -> None:
    """Saving all, the chain holds a, b, c: c is 3 bytes for 9 s, with a and b there."""
    decision = explained(chain()).decisions["c"]
    assert (decision.choice, decision.rebuild, decision.rebuild_seconds) == (
        Choice.SAVED,
        ("fc",),
        9.0,
    )
    assert "would take 9 s (1 op) for 3 B" in decision.reason


def test_a_recomputed_value_by_hand() -> None:
    """With c saved alone b is made again from x by fa and fb, 3 s."""
    explainer = saving(chain(), "c")
    decision = explainer.decisions["b"]
    assert decision.choice is Choice.RECOMPUTED
    assert (decision.rebuild, decision.rebuild_seconds, decision.runs) == (("fa", "fb"), 3.0, 1)


@pytest.mark.parametrize(
    ("problem", "name", "choice", "reason"),
    [
        (random_op, "m", Choice.SAVED, "drop may not run again: random"),
        (unsaveable, "s", Choice.RECOMPUTED, "it may not be saved: symbolic float"),
        (held, "y", Choice.OUTPUT, "the forward returns it"),
        (nothing_needed, "x", Choice.INPUT, "exists anyway"),
        (random_op, "a", Choice.UNNEEDED, "the backward does not need it"),
    ],
)
def test_reasons(problem: object, name: str, choice: Choice, reason: str) -> None:
    assert callable(problem)
    decision = saving(problem(), "m").decisions[name]
    assert decision.choice is choice
    assert reason in decision.reason


def test_a_flip_is_planned_anew() -> None:
    """Everything saved costs nothing; c recomputed costs its 9 s within the same peak."""
    explainer = explained(chain())
    flip = explainer.flip("c")
    assert flip is not None
    assert (flip.choice, flip.seconds) == (Choice.RECOMPUTED, 9.0)
    assert explained(random_op()).flip("x") is None


def test_what_may_not_be_flipped_says_why() -> None:
    flip = saving(random_op(), "m").flip("m")
    assert flip is not None
    assert (flip.seconds, flip.why) == (None, "drop may not run again: random")
    flip = saving(unsaveable(), "a").flip("s")
    assert flip is not None
    assert (flip.seconds, flip.why) == (None, "it may not be saved: symbolic float")
    assert "it cannot be recomputed" in saving(random_op(), "m").about("m")


def test_worth_is_what_other_budgets_give() -> None:
    explainer = Explainer(half())
    solver = Planner.of(half()).solver
    more = solver.solve(half().predicted_peak + explainer.more.nbytes)
    assert more is not None
    assert explainer.more.seconds == pytest.approx(half().recompute_seconds - more.seconds)
    assert explainer.more.seconds is not None
    assert explainer.more.seconds > 0
    assert explainer.less.nbytes == -explainer.more.nbytes
    assert explainer.less.seconds is None or explainer.less.seconds <= 0


def test_a_real_plan_in_words() -> None:
    plan = half()
    name = max(plan.saved, key=lambda v: v.nbytes).name
    told = fxremat.explain(plan, name)
    assert told.splitlines()[0].startswith(f"{name}: saved")
    for word in ("why", "made by    aten.", "in         ", "steps.py:", "cost", "flip", "worth"):
        assert word in told
    again = fxremat.explain(plan, plan.recomputed[0])
    assert "recomputed" in again.splitlines()[0]
    assert "runs again" in again
    peak = fxremat.explain(plan)
    assert peak.startswith("peak")
    assert len(peak.splitlines()) >= 12


def test_all_values_of_a_real_plan_are_told_apart() -> None:
    explainer = Explainer(half())
    saved = {v.name for v in half().saved}
    for name, decision in explainer.decisions.items():
        assert (decision.choice is Choice.SAVED) == (name in saved)
        assert bool(decision.rebuild) == (
            math.isfinite(decision.rebuild_seconds)
            and decision.choice not in (Choice.INPUT, Choice.TANGENT)
        )


def test_names_are_found_or_the_nearest_are_told() -> None:
    explainer = Explainer(half())
    assert explainer.find("native_layer_norm") in explainer.decisions
    with pytest.raises(OptionError, match=r"no value 'gelu_77'; near it are gelu"):
        explainer.find("gelu_77")


def test_a_plan_from_a_file_says_the_same() -> None:
    plan = Plan.from_json(half().to_json())
    assert plan == half()
    assert fxremat.explain(plan) == fxremat.explain(half())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2.0, "2 s"),
        (0.0031, "3.1 ms"),
        (4.2e-6, "4.2 us"),
        (5e-9, "5 ns"),
        (0.0, "0 s"),
        (math.inf, "forever"),
    ],
)
def test_format_seconds(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
