"""What programs of odd kinds are made of, and how they are held against eager PyTorch.

Each program is made anew for each run: it returns a callable and its arguments. Compared are all
outputs, the gradients of all arguments and parameters, arguments and buffers after the step, and
the next random number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import fxremat

D = torch.float64
Made = tuple[Callable[..., Any], tuple[Any, ...]]


def leaf(*shape: int, dtype: torch.dtype = D) -> Tensor:
    return (0.5 * torch.randn(shape, dtype=dtype)).requires_grad_()


def deep(x: Tensor, w: Tensor) -> Tensor:
    for _ in range(3):
        x = (x @ w).tanh().exp().sin()
    return x


@dataclass
class Pair:
    first: Tensor
    second: Tensor


pytree.register_dataclass(Pair, serialized_type_name="fxremat_tests.Pair")


class Wrapped(nn.Module):
    def __init__(self, run: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self.run = run
        self.parts = nn.ModuleDict(parts)

    def forward(self, *args: Any) -> Any:
        return self.run(*args)


@torch.library.custom_op("fxremat_tests::accumulate", mutates_args=("total",))
def accumulate(x: Tensor, total: Tensor) -> None:
    total.add_(x.sum(0))


def outcome(make: Callable[[], Made], backend: Any) -> list[Any]:
    torch.compiler.reset()
    torch.manual_seed(0)
    run, args = make()
    used = run if backend is None else torch.compile(run, backend=backend, fullgraph=True)
    outputs = [o for o in pytree.tree_leaves(used(*args)) if o is not None]
    flat = [o for one in outputs for o in (vars(one).values() if isinstance(one, Pair) else [one])]
    total = sum(o.abs().float().sum() for o in flat if o.requires_grad)
    total.backward()
    module = list(run.parameters()) + list(run.buffers()) if isinstance(run, nn.Module) else []
    leaves = [a for a in (*args, *module) if isinstance(a, Tensor)]
    grads = [a.grad for a in leaves if a.is_leaf and a.grad is not None]
    return [*(o.detach() for o in flat), *grads, *(a.detach() for a in leaves), torch.rand(2)]


def check(make: Callable[[], Made], relative: float = 1e-6, absolute: float = 1e-9) -> None:
    """A step at two budgets leaves behind what a step of eager does."""
    expected = outcome(make, None)
    for budget in (0.6, "min"):
        backend = fxremat.backend(budget, inner="eager", on_infeasible="closest")
        found = outcome(make, backend)
        assert backend.plans
        torch.testing.assert_close(found, expected, rtol=relative, atol=absolute)
