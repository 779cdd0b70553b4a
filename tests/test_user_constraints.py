"""What the user pins: saved, recomputed or preferred values, and budgets for regions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import fxremat
from fxremat.base.errors import BudgetError, InfeasibleError, OptionError
from fxremat.plans.plan import Plan

Program = Callable[[Tensor, Tensor], Tensor]


def run(program: Program, budget: object = None, **options: Any) -> tuple[list[Tensor], Plan]:
    """Loss and gradients of a step, and its plan; held against eager."""
    backend = fxremat.backend(budget, inner="eager", **options)
    found = []
    for used in (program, torch.compile(program, backend=backend, fullgraph=True)):
        torch.compiler.reset()
        torch.manual_seed(0)
        x, w = torch.randn(64, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)
        loss = used(x, w)
        loss.backward()
        assert x.grad is not None
        assert w.grad is not None
        found.append([loss.detach(), x.grad, w.grad])
    torch.testing.assert_close(found[1], found[0])
    (plan,) = backend.plans
    return found[1], plan


def failure(program: Program, **options: Any) -> BaseException:
    with pytest.raises(Exception, match="raised") as caught:
        run(program, **options)
    inner: BaseException = caught.value.inner_exception  # type: ignore[attr-defined]
    return inner


def saved(plan: Plan) -> set[str]:
    return {s.name for s in plan.saved}


def layers(x: Tensor, w: Tensor) -> Tensor:
    for _ in range(4):
        x = (x @ w).tanh().exp().sin()
    return x.sum()


def test_a_value_is_recomputed_although_there_is_room() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        h = fxremat.recompute((x @ w).exp())
        return h.sin().sum()

    _, plan = run(program)
    assert plan.recomputed == ("exp",)
    assert saved(plan) == {"mm"}


def test_a_value_is_saved_although_the_budget_is_the_least() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        for at in range(4):
            x = (x @ w).exp()
            x = fxremat.save(x) if at == 1 else x
            x = x.sin()
        return x.sum()

    _, free = run(layers, "min")
    _, plan = run(program, "min")
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
    net = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.GELU()) for _ in range(3)))

    def program(x: Tensor, w: Tensor) -> Tensor:
        y: Tensor = net(x @ w)
        return y.sum()

    _, plan = run(program, policy={"1.0": "recompute"})
    assert plan.recomputed == ("addmm_1",)


def test_a_path_means_the_modules_within_too() -> None:
    net = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.GELU()) for _ in range(3)))

    def program(x: Tensor, w: Tensor) -> Tensor:
        y: Tensor = net(x @ w)
        return y.sum()

    _, plan = run(program, policy={"[01]": "recompute"})
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


def held_by(plan: Plan, prefix: str) -> int:
    return sum(s.nbytes for s in plan.saved if s.name.startswith(prefix))


def test_a_region_holds_no_more_than_its_budget() -> None:
    """Four exp of 4 KiB are saved without budgets, two of them with half of that."""

    def program(share: float) -> Program:
        def layers(x: Tensor, w: Tensor) -> Tensor:
            for _ in range(4):
                x = x @ w
                with fxremat.region(share, "exp"):
                    x = x.exp()
                x = x.sin()
            return x.sum()

        return layers

    _, free = run(program(1.0))
    assert held_by(free, "exp") == 4 * 4096
    _, plan = run(program(0.5))
    assert held_by(plan, "exp") == 2 * 4096


def test_torchs_own_word_for_a_region_is_heeded() -> None:
    def deep(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(4):
            x = (x @ w).exp().sin()
        return x.sum()

    def program(share: float) -> Program:
        def layers(x: Tensor, w: Tensor) -> Tensor:
            if not torch.compiler.is_compiling():  # torch refuses it in eager
                return deep(x, w)
            with torch.autograd.graph.region_activation_memory_budget(share):
                return deep(x, w)

        return layers

    _, free = run(program(1.0))
    _, half = run(program(0.5))
    assert half.saved_bytes <= free.saved_bytes // 2
    _, least = run(program(0.0))
    assert least.saved_bytes < half.saved_bytes


def test_two_regions_of_one_graph_have_budgets_of_their_own() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        with fxremat.region("4 KiB"):
            a = (x @ w).exp().sin().exp().cos()
        with fxremat.region("min", "none"):
            b = (a @ w).sigmoid().tanh().sigmoid().cos()
        return b.sum()

    _, free = run(layers)
    _, plan = run(program)
    first = held_by(plan, "exp") + held_by(plan, "sin") + held_by(plan, "mm")
    second = held_by(plan, "sigmoid") + held_by(plan, "tanh")
    assert first <= 4096
    assert second == 0
    assert free.recomputed == ()


def test_a_region_goes_by_the_path_of_its_module() -> None:
    net = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.GELU()) for _ in range(4)))

    def program(x: Tensor, w: Tensor) -> Tensor:
        y: Tensor = net(x @ w)
        return y.sum()

    _, free = run(program)
    _, plan = run(program, regions={"1": 0.5, "2*": "min"})
    assert saved(plan) < saved(free)
    assert {"addmm_2", "gelu_2"}.isdisjoint(saved(plan))
    assert saved(plan) >= {"addmm_3"}


def test_a_region_that_cannot_keep_its_budget_is_refused() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        with fxremat.region("1 KiB", "top"):
            values, at = (x @ w).topk(8, 1)
        return (values.exp() * x.gather(1, at)).sum()

    error = failure(program)
    assert isinstance(error, BudgetError)
    assert "region 'top'" in str(error)
    assert error.asked == 1024
    assert error.least is not None
    assert error.least > 1024


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


def test_two_budgets_of_one_region_are_refused() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        with fxremat.region(0.9, "part"):
            h = (x @ w).exp()
        with fxremat.region("min", "part"):
            return h.sin().sum()

    error = failure(program)
    assert isinstance(error, BudgetError)
    assert "'part' share one budget" in str(error)


def test_what_is_no_tensor_cannot_be_marked() -> None:
    with pytest.raises(OptionError, match=r"fxremat.save\(3\): not a tensor"):
        fxremat.save(3)  # type: ignore[arg-type]


def test_a_region_without_a_limit_and_one_that_makes_no_sense() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        with fxremat.region(None, "a\nb"):
            return (x @ w).exp().sin().sum()

    _, plan = run(program)
    assert plan.recomputed == ()
    with pytest.raises(BudgetError, match=r"-0\.5"):
        fxremat.region(-0.5)


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
