"""One small model, planned, for tests of what is made of plans."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

import fxremat
from fxremat.plans.frontier import Frontier
from fxremat.plans.plan import Plan


class Blocks(nn.Module):
    """A few residual blocks and a loss; ``layers`` is a list of blocks."""

    def __init__(self, depth: int = 4, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU())
            for _ in range(depth)
        )
        self.mixes = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for layer, mix in zip(self.layers, self.mixes, strict=True):
            x = x + mix(layer(x))
        return x.square().mean()


def blocks(rows: int = 64, device: str = "cpu") -> tuple[Blocks, Tensor]:
    """The model and its batch."""
    torch.manual_seed(0)
    with torch.device(device):
        return Blocks(), torch.randn(rows, 16)


@cache
def half() -> Plan:
    """The plan of the model at half of its peak, for a GPU, with an optimizer."""
    model, batch = blocks(device="meta")
    return fxremat.plan(
        model, batch, budget=0.5, device="h100", optimizer="AdamW", inner="eager", effort=0
    )


@cache
def curve() -> Frontier:
    """The frontier of the same step."""
    return fxremat.frontier(half())
