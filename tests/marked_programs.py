"""Programs of two tensors for tests of marks and patterns, and their steps held against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fxremat
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


def held_by(plan: Plan, prefix: str) -> int:
    return sum(s.nbytes for s in plan.saved if s.name.startswith(prefix))


def stacked(depth: int) -> Program:
    """Blocks of a layer and its activation, of which the modules have paths."""
    net = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.GELU()) for _ in range(depth)))

    def program(x: Tensor, w: Tensor) -> Tensor:
        y: Tensor = net(x @ w)
        return y.sum()

    return program


def marked(mark: Callable[[Tensor], Tensor], depth: int) -> Program:
    """Layers of which the second has a mark on its exponential."""

    def program(x: Tensor, w: Tensor) -> Tensor:
        for at in range(depth):
            x = (x @ w).exp()
            x = mark(x) if at == 1 else x
            x = x.sin()
        return x.sum()

    return program
