"""A backward that writes to what the forward has returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fxremat

# Dynamo itself makes one while it traces.
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")

Write = Callable[[Tensor, Tensor], object]


def _add(seen: Tensor, grad: Tensor) -> None:
    seen.add_(grad)


def _row(seen: Tensor, grad: Tensor) -> None:
    seen[0].mul_(2).add_(grad[1])


def _twice(seen: Tensor, grad: Tensor) -> None:
    seen.mul_(3)
    seen.sub_(grad)


def _copy(seen: Tensor, grad: Tensor) -> None:
    seen.copy_(grad)


def _zero(seen: Tensor, grad: Tensor) -> None:
    seen.zero_().add_(grad)


def network(write: Write) -> nn.Module:
    class Written(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, seen: Tensor) -> Tensor:
            ctx.save_for_backward(seen)
            return x * 2

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
            (seen,) = ctx.saved_tensors
            write(seen, grads[0])
            return grads[0] * 2, None

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            seen = torch.ones_like(x).mul(0.5)
            for layer in self.layers:
                x = torch.tanh(torch.exp(-layer(x).square()))
            x = Written.apply(x, seen)  # type: ignore[no-untyped-call]
            return x.square().mean(), seen

    torch.manual_seed(0)
    return Net()


def trained(net: nn.Module, run: Callable[..., Any]) -> list[Tensor]:
    """The gradients of a step, and what it returned as it is after the backward."""
    batch = torch.linspace(-1, 1, 64 * 16).view(64, 16)
    loss, seen = run(batch)
    loss.backward()
    return [*(p.grad for p in net.parameters() if p.grad is not None), seen]


@pytest.mark.parametrize(
    ("write", "budget"),
    [(_add, None), (_add, "min"), (_row, 0.5), (_twice, "min"), (_copy, 0.5), (_zero, 0.5)],
)
def test_the_write_shows_in_what_was_returned(write: Write, budget: Any) -> None:
    net, twin = network(write), network(write)
    expected = trained(net, net)
    backend = fxremat.backend(budget, inner="eager")
    found = trained(twin, torch.compile(twin, backend=backend))
    assert not torch.equal(found[-1], torch.full((64, 16), 0.5))
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
