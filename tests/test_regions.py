"""Budgets for regions of a model."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import fxremat
from fxremat.base.errors import BudgetError
from tests.marked_programs import Program, failure, held_by, layers, run, saved, stacked


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
    program = stacked(4)
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


def test_two_budgets_of_one_region_are_refused() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        with fxremat.region(0.9, "part"):
            h = (x @ w).exp()
        with fxremat.region("min", "part"):
            return h.sin().sum()

    error = failure(program)
    assert isinstance(error, BudgetError)
    assert "'part' share one budget" in str(error)


def test_a_region_without_a_limit_and_one_that_makes_no_sense() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        with fxremat.region(None, "a\nb"):
            return (x @ w).exp().sin().sum()

    _, plan = run(program)
    assert plan.recomputed == ()
    with pytest.raises(BudgetError, match=r"-0\.5"):
        fxremat.region(-0.5)
