"""A memory budget in a LightningModule: python examples/lightning_module.py.

The method that makes the loss is compiled; ``training_step``, with its logging, stays as it is.
``model.compile(...)`` would have no effect: Lightning calls ``training_step``, not the module.
Lightning has no checkpointing of its own outside of sharding: "checkpointing" is
torch.utils.checkpoint around each block. The columns of the table are explained in sidebyside.py.
"""

from __future__ import annotations

import argparse
import functools
import logging
import sys
from collections.abc import Sequence

import lightning
import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import fxremat
import sidebyside
from sidebyside import Row, Way

Settings = argparse.Namespace


class Net(lightning.LightningModule):
    """Residual blocks with dropout.

    Args:
        depth: blocks.
        width: features.
        checkpointing: whether each block is run again in the backward.
        backend: what the loss is compiled with; None leaves it uncompiled.
    """

    def __init__(
        self,
        depth: int,
        width: int,
        *,
        checkpointing: bool = False,
        backend: fxremat.Backend | None = None,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, 4 * width),
                nn.GELU(),
                nn.Dropout(0.1),
                nn.Linear(4 * width, width),
            )
            for _ in range(depth)
        )
        self.checkpointing = checkpointing
        self.losses: list[float] = []
        self.loss_of = self.loss if backend is None else torch.compile(self.loss, backend=backend)

    def loss(self, x: Tensor, target: Tensor) -> Tensor:
        """The mean square error."""
        for block in self.blocks:
            x = x + (checkpoint(block, x, use_reentrant=False) if self.checkpointing else block(x))
        return nn.functional.mse_loss(x, target)

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        """Log as always."""
        loss: Tensor = self.loss_of(*batch)
        self.log("loss", loss)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def fit(net: Net, data: TensorDataset, batch: int) -> list[float]:
    """Losses of one epoch."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(net, DataLoader(data, batch_size=batch))
    return net.losses


def train(settings: Settings, way: Way) -> Row:
    """Train in one way."""
    backend = None
    if way.budget is not None:
        # Measured, since what dropout draws takes longer on a CPU than its bytes would say.
        backend = fxremat.backend(way.budget, inner=settings.inner, cost="measured")
    torch.manual_seed(0)
    sizes = settings.depth, settings.width
    net = Net(*sizes, checkpointing=way.checkpointing, backend=backend)
    x = torch.randn(settings.steps * settings.batch, settings.width)
    losses = fit(net, TensorDataset(x, x.roll(1, 1)), settings.batch)

    eager, part = None, (x[: settings.batch], x.roll(1, 1)[: settings.batch])
    if way != Way():
        plain = Net(*sizes)
        eager = lambda: plain.loss(*part).backward()  # noqa: E731
    net.zero_grad()
    step = lambda: net.loss_of(*part).backward()  # noqa: E731
    return sidebyside.measured(losses, backend, step, eager, settings.pairs)


def parse(argv: Sequence[str] | None) -> Settings:
    """Read the command line."""
    parser = sidebyside.options(__doc__)
    parser.set_defaults(batch=1024)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--width", type=int, default=128)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Compare; 1 if a budget was exceeded."""
    return sidebyside.compare(functools.partial(train, parse(argv)), ("lightning",))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
