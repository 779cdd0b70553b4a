"""The model that ranks train in :mod:`tests.rank_programs`, and what they tell of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.functional import gelu

from fxremat.base.measure import peak_bytes
from fxremat.plans.plan import Plan

Found = dict[str, Any]
WIDTH, ROWS, DEPTH = 32, 512, 4
SOON = timedelta(seconds=4)


class Mix(nn.Module):
    """One residual layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.down(gelu(self.up(self.norm(x))))
        return y


class Block(nn.Module):
    """Three layers. (Dynamo would compile those of a sharded ``nn.Sequential`` one by one.)"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Mix(width) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Net(nn.Module):
    """Blocks of three layers each, and a loss."""

    def __init__(self, depth: int = DEPTH, width: int = WIDTH) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


def net(**sizes: int) -> Net:
    """The same model on all ranks, in float64."""
    torch.manual_seed(0)
    return Net(**sizes).double()


def batches(count: int, rows: int = ROWS, width: int = WIDTH) -> list[Tensor]:
    """Other data on each rank."""
    made = torch.Generator().manual_seed(dist.get_rank())
    return [torch.randn(rows, width, generator=made, dtype=torch.float64) for _ in range(count)]


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor that is shared out."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def train(
    model: nn.Module, run: Callable[[Tensor], Tensor], data: Sequence[Tensor]
) -> list[Tensor]:
    """Losses, then gradients and parameters, after a few steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for x in data:
        optimizer.zero_grad()
        loss = run(x)
        loss.backward()
        optimizer.step()
        losses.append(whole(loss.detach()))
    grads = [whole(p.grad) for p in model.parameters() if p.grad is not None]
    return [*losses, *grads, *(whole(p.detach()) for p in model.parameters())]


def differ(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest difference."""
    return max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True))


def peak(run: Callable[[Tensor], Tensor], model: nn.Module, x: Tensor) -> int:
    """Measured peak of a step."""

    def step() -> None:
        run(x).backward()

    model.zero_grad()
    return peak_bytes(step)


def told(plans: Sequence[Plan]) -> list[Found]:
    """What tests ask of plans."""
    return [
        {
            "graph": p.graph,
            "budget": p.budget,
            "predicted": p.predicted_peak,
            "baseline": p.baseline_peak,
            "held": p.reserved,
            "saved": p.saved_bytes,
            "recomputed": list(p.recomputed),
            "schedule": list(p.backward_schedule),
        }
        for p in plans
    ]


def failure(run: Callable[[], object]) -> Found:
    """The error that a call ends with, and the seconds until then."""
    start = time.perf_counter()
    try:
        run()
    except Exception as error:
        cause = getattr(error, "inner_exception", error)
        return {
            "error": type(cause).__name__,
            "message": str(cause),
            "seconds": time.perf_counter() - start,
        }
    return {"error": "", "message": "", "seconds": time.perf_counter() - start}
