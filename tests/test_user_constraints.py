"""What the user pins: saved, recomputed or preferred values, and budgets for regions."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.nn import functional
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import fxremat
from fxremat.base.errors import BudgetError, InfeasibleError, OptionError
from tests.marked_programs import failure, layers, marked, run, saved, stacked


def test_a_value_is_recomputed_although_there_is_room() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        h = fxremat.recompute((x @ w).exp())
        return h.sin().sum()

    _, plan = run(program)
    assert plan.recomputed == ("exp",)
    assert saved(plan) == {"mm"}


def test_a_value_is_saved_although_the_budget_is_the_least() -> None:
    _, free = run(layers, "min")
    _, plan = run(marked(fxremat.save, 4), "min")
    assert "exp_1" in saved(plan)
    assert "exp_1" not in plan.recomputed
    assert plan.predicted_peak >= free.predicted_peak


def test_marks_do_nothing_in_eager() -> None:
    x = torch.ones(2)
    assert fxremat.save(x) is x
    assert fxremat.recompute(x) is x
    with fxremat.region(0.5):
        assert float((x + 1).sum()) == 4


def test_recomputing_what_may_run_once_is_refused_with_the_reasons() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        _, at = (x @ w).topk(3, 1)
        picked = fxremat.recompute(at)
        return x.gather(1, picked).exp().sum() + w.sum()

    error = failure(program)
    assert isinstance(error, InfeasibleError)
    assert any("fxremat.recompute() says so" in step for step in error.path)
    assert any("steers what follows" in step for step in error.path)


def test_a_table_goes_by_op_path_and_name() -> None:
    _, plan = run(layers, policy={"aten.tanh": "recompute", "exp_2": "recompute"})
    assert {n.rpartition("_")[0] or n for n in plan.recomputed} == {"tanh", "exp"}
    assert [n for n in plan.recomputed if n.startswith("exp")] == ["exp_2"]
    _, plan = run(layers, "min", policy={"aten.mm.default": "save"})
    assert not [n for n in plan.recomputed if n.startswith("mm")]


def test_a_table_goes_by_the_path_of_the_module() -> None:
    _, plan = run(stacked(3), policy={"1.0": "recompute"})
    assert plan.recomputed == ("addmm_1",)


def test_a_path_means_the_modules_within_too() -> None:
    _, plan = run(stacked(3), policy={"[01]": "recompute"})
    assert set(plan.recomputed) == {"addmm", "gelu", "addmm_1", "gelu_1"}


def test_a_callable_decides_node_by_node() -> None:
    def policy(node: fx.Node) -> str | None:
        return "recompute" if node.target is torch.ops.aten.exp.default else None

    _, plan = run(layers, policy=policy)
    assert {n.split("_")[0] for n in plan.recomputed} == {"exp"}


def test_what_a_callable_may_not_return() -> None:
    error = failure(layers, policy=lambda node: "keep")
    assert isinstance(error, OptionError)
    assert "'keep'" in str(error)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"policy": 3}, "3.*int.*policy"),
        ({"policy": {"aten.mm": "sav"}}, "did you mean 'save'"),
        ({"policy": {1: "save"}}, "1 is no pattern"),
        ({"regions": 0.5}, "0.5.*float.*table"),
        ({"regions": {2: 0.5}}, "2 is no pattern"),
    ],
)
def test_wrong_pins_are_refused_when_the_backend_is_made(wrong: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        fxremat.backend(None, **wrong)
    with pytest.raises(BudgetError):
        fxremat.backend(None, regions={"a": -1.0})


def test_a_preference_changes_the_price_and_not_the_figures() -> None:
    """Of two results alike one has to go: the one that had better be recomputed."""

    _, plain = run(layers, 0.8)
    first = plain.recomputed[0]
    _, kept = run(layers, 0.8, policy={first: "prefer_save"})
    assert first not in kept.recomputed
    assert kept.recompute_seconds >= plain.recompute_seconds * (1 - 1e-9)
    assert kept.lower_bound_seconds == plain.lower_bound_seconds
    _, again = run(layers, 0.8, policy={first: "prefer_recompute"})
    assert again.recompute_seconds == pytest.approx(plain.recompute_seconds)


@pytest.mark.parametrize("policy", [CheckpointPolicy.PREFER_SAVE, CheckpointPolicy.MUST_SAVE])
def test_policies_of_checkpoint(policy: CheckpointPolicy) -> None:
    def decide(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        return policy if op is torch.ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE

    def contexts() -> Any:
        return create_selective_checkpoint_contexts(decide)

    def program(x: Tensor, w: Tensor) -> Tensor:
        def block(h: Tensor) -> Tensor:
            return (h @ w).tanh().exp()

        for _ in range(3):
            x = checkpoint(block, x, use_reentrant=False, context_fn=contexts)
        return x.sum()

    _, plan = run(program, 0.8)
    assert plan.recomputed
    assert not [n for n in plan.recomputed if n.startswith("mm")]


def test_dropout_in_a_pinned_region_keeps_its_mask() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        h = fxremat.recompute(functional.dropout((x @ w).exp(), 0.5))
        return (h @ w).sin().sum()

    _, plan = run(program)
    assert "native_dropout" in plan.recomputed
    assert "native_dropout_rng" in saved(plan)


def test_two_marks_of_one_value_are_refused() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        h = (x @ w).tanh()
        return (fxremat.save(h).sin() * fxremat.recompute(h).cos()).sum()

    error = failure(program)
    assert isinstance(error, InfeasibleError)
    assert "to be saved and to be recomputed" in str(error)
    assert error.path


def test_what_is_no_tensor_cannot_be_marked() -> None:
    with pytest.raises(OptionError, match=r"fxremat.save\(3\): not a tensor"):
        fxremat.save(3)  # type: ignore[arg-type]


def test_marks_within_a_branch_are_warned_of() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        y: Tensor = torch.cond(
            x.sum() > 0,
            lambda a, b: fxremat.recompute((a @ b).exp()).sin(),
            lambda a, b: (a @ b).cos(),
            (x, w),
        )
        return y.sum()

    with pytest.warns(UserWarning, match="not heeded within the branches"):
        run(program)


def test_patterns_that_match_nothing_are_warned_of() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run(layers, policy={"aten.tanh": "save", "aten.tahn": "save"}, regions={"aten.exp": 0.5})
    texts = [str(w.message) for w in said if "matches nothing" in str(w.message)]
    assert len(texts) == 2
    assert texts[0].startswith("policy: the pattern 'aten.tahn' matches nothing in this graph")
    assert "aten.tanh" in texts[0]
    assert texts[1].startswith("regions: the pattern 'aten.exp'")  # these go by modules alone
