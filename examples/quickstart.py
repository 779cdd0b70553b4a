"""Put a peak-memory budget on a training step: python examples/quickstart.py."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor

import torch
from torch import Tensor, nn

import fxremat
from fxremat.base.measure import peak_bytes


def measured(compiled: bool) -> tuple[int, list[fxremat.Plan]]:
    """The peak in bytes of one training step, uncompiled or at half of its baseline; the plans."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU()) for _ in range(12)]
    model = nn.Sequential(*layers)
    batch = torch.randn(4096, 256)

    def loss(x: Tensor) -> Tensor:
        # The loss is part of what is compiled, so that the budget covers the whole step.
        y: Tensor = model(x)
        return y.square().mean()

    backend = fxremat.backend(0.5, inner="eager")
    run: Callable[[Tensor], Tensor] = torch.compile(loss, backend=backend) if compiled else loss

    def step() -> None:
        model.zero_grad()
        run(batch).backward()

    step()  # the first call compiles
    return peak_bytes(step), backend.plans


def main(argv: Sequence[str] | None = None) -> int:
    """Measure both, each in a process of its own, and print the peaks."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fxremat"])
    with ProcessPoolExecutor(1, context, max_tasks_per_child=1) as pool:
        (eager, _), (ours, (plan,)) = pool.map(measured, (False, True))
    print(f"eager:    {eager / 2**20:6.1f} MiB measured")
    print(f"fxremat:  {ours / 2**20:6.1f} MiB measured")
    print(f"plan:     {plan.predicted_peak / 2**20:6.1f} MiB predicted")
    print(f"budget:   {(plan.budget or 0) / 2**20:6.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
