"""Odd training programs, compiled and compared with what eager PyTorch computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, gelu
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import fxremat

BUDGETS = (1.0, 0.5, "min")


class KeepCos(torch.autograd.Function):
    """Computes in the forward, from an input, what only the backward reads."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
        ctx.save_for_backward(scale.cos())
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        return grad * kept, None


def _keep_cos(x: Tensor, scale: Tensor) -> Tensor:
    result: Tensor = KeepCos.apply(x, scale)  # type: ignore[no-untyped-call]
    return result


def _recompute_all(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_RECOMPUTE


def _policies() -> Any:
    return create_selective_checkpoint_contexts(_recompute_all)


def keeps_what_a_write_destroys(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    y = _keep_cos(x @ w, scale).sin()
    scale.zero_()
    return y


def keeps_a_view_of_what_a_write_destroys(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    y = _keep_cos(x @ w, scale.t()).sin()
    scale.mul_(3)
    return y


def overwrites_an_argument_that_needs_grad(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    y = w.sin() * scale
    x.mul_(w.exp())
    return y * x.cos()


def reads_a_buffer_before_and_after_writes(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    a = x * scale.exp()
    scale.mul_(0.5)
    b = (a @ w * scale.exp()).sin()
    scale.add_(x.detach())
    return (b * scale.exp()).tanh()


def drops_in_many_places(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    for _ in range(3):
        x = dropout(gelu(dropout(x, 0.3) @ w), 0.2)
    return x * scale


def must_recompute_a_dropout(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    def block(h: Tensor) -> Tensor:
        return dropout(gelu(h @ w), 0.2) @ w

    y: Tensor = checkpoint(block, x, use_reentrant=False, context_fn=_policies)
    return y.sin() * scale


def writes_through_views(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    y = x @ w
    y[:, ::2].mul_(2)
    z = y.t().clone()
    z[0] = z[1] * 3
    return gelu(z).sum(1) * scale


PROGRAMS = (
    keeps_what_a_write_destroys,
    keeps_a_view_of_what_a_write_destroys,
    overwrites_an_argument_that_needs_grad,
    reads_a_buffer_before_and_after_writes,
    drops_in_many_places,
    must_recompute_a_dropout,
    writes_through_views,
)


def _run(function: Callable[..., Tensor]) -> list[Tensor]:
    """Output, gradients and arguments after one step, and the next random number."""
    torch.manual_seed(0)
    x, w = torch.randn(16, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)
    x_used, scale = x * 1, torch.rand(16, 16)
    out = function(x_used, w, scale)
    (out * torch.linspace(0.5, 1.5, out.numel()).view(out.shape)).sum().backward()
    assert x.grad is not None
    assert w.grad is not None
    return [out.detach(), x.grad, w.grad, x_used.detach(), scale, torch.rand(2)]


def _compile(target: Any, budget: object) -> Any:
    # So small a program may have no plan within its budget; the closest is as good a test.
    inner = fxremat.backend(budget, inner="eager", on_infeasible="closest")
    return torch.compile(target, backend=inner, fullgraph=True)


@pytest.mark.filterwarnings("ignore:no plan found within")
# Dynamo looks at the gradient of each argument and instantiates autograd functions.
@pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore:.*should not be instantiated")
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_program_computes_what_eager_does(program: Callable[..., Tensor], budget: object) -> None:
    expected = _run(program)
    found = _run(_compile(program, budget))
    torch.testing.assert_close(found, expected)


@pytest.mark.filterwarnings("ignore:no plan found within")
@pytest.mark.parametrize("budget", BUDGETS)
def test_batch_norm_trains_evaluates_and_accumulates_as_in_eager(budget: object) -> None:
    def train(compiled: bool) -> list[Tensor]:
        torch.manual_seed(0)
        layers = (nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.GELU(), nn.Linear(8, 8))
        net = nn.Sequential(*layers)
        run = _compile(net, budget) if compiled else net
        seen = []
        for _ in range(2):
            run(torch.randn(16, 8)).sin().sum().backward()  # gradients add up over both rounds
            net.eval()
            with torch.no_grad():
                seen.append(run(torch.ones(4, 8)))
            net.train()
        grads = [p.grad for p in net.parameters() if p.grad is not None]
        return [*seen, *grads, *net.buffers()]

    torch.testing.assert_close(train(compiled=True), train(compiled=False))


def test_sparse_gradient_is_refused_with_a_reason() -> None:
    table = nn.Embedding(20, 8, sparse=True)
    with pytest.raises(Exception, match=r"(?i)sparse") as caught:
        _compile(table, 1.0)(torch.arange(4)).sum().backward()
    assert isinstance(getattr(caught.value, "inner_exception", None), fxremat.RematError)
