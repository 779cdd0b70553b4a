"""A memory budget for the training of a diffusion model: python examples/diffusion.py.

A UNet of diffusers, its weights made from a config, learns to tell the noise in an image. UNet and
loss are compiled together. "checkpointing" is unet.enable_gradient_checkpointing(). The columns of
the table are explained in sidebyside.py.
"""

from __future__ import annotations

import argparse
import copy
import functools
import sys
from collections.abc import Callable, Sequence

import torch
from diffusers import DDPMScheduler, UNet2DModel
from torch import Tensor, nn

import fxremat
import sidebyside
from sidebyside import Row, Way

Settings = argparse.Namespace
Batch = tuple[Tensor, Tensor, Tensor]


def make_unet(size: int, width: int) -> UNet2DModel:
    """Two levels, with attention at the lower one."""
    return UNet2DModel(
        sample_size=size,
        block_out_channels=(width, 2 * width),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        layers_per_block=1,
        norm_num_groups=8,
    ).train()


def loss_of(unet: nn.Module) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The mean square error of the noise that is told."""

    def loss(noisy: Tensor, noise: Tensor, times: Tensor) -> Tensor:
        return nn.functional.mse_loss(unet(noisy, times).sample, noise)

    return loss


def train(settings: Settings, way: Way) -> Row:
    """Train in one way."""
    torch.manual_seed(0)
    unet = make_unet(settings.size, settings.width)
    original = copy.deepcopy(unet)
    if way.checkpointing:
        unet.enable_gradient_checkpointing()
    scheduler = DDPMScheduler(1000)
    optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-4)
    images = torch.randn(settings.batch, 3, settings.size, settings.size)

    def batch() -> Batch:
        noise, times = torch.randn_like(images), torch.randint(0, 1000, (settings.batch,))
        return scheduler.add_noise(images, noise, times), noise, times

    backend, run = None, loss_of(unet)
    if way.budget is not None:
        backend = fxremat.backend(way.budget, inner=settings.inner)
        run = torch.compile(run, backend=backend)

    losses = []
    for _ in range(settings.steps):
        loss = run(*batch())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    del loss

    eager, given = None, batch()
    if way != Way():
        plain = loss_of(original)
        eager = lambda: plain(*given).backward()  # noqa: E731
    step = lambda: run(*given).backward()  # noqa: E731
    return sidebyside.measured(losses, backend, step, eager, settings.pairs)


def parse(argv: Sequence[str] | None) -> Settings:
    """Read the command line."""
    parser = sidebyside.options(__doc__)
    parser.add_argument("--size", type=int, default=32, help="pixels of an edge")
    parser.add_argument("--width", type=int, default=32)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Compare; 1 if a budget was exceeded."""
    train_settings = functools.partial(train, parse(argv))
    preload = ("diffusers.models.unets.unet_2d", "diffusers.schedulers.scheduling_ddpm")
    return sidebyside.compare(train_settings, preload)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
