"""Put a peak-memory budget on a training step: python examples/quickstart.py."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

import fxremat
from fxremat.base.measure import peak_bytes


def main(argv: Sequence[str] | None = None) -> int:
    """Print the peak of one training step, uncompiled and at half of its baseline."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU()) for _ in range(12)]
    model = nn.Sequential(*layers)
    batch = torch.randn(4096, 256)

    def loss(x: Tensor) -> Tensor:
        # The loss is part of what is compiled, so that the budget covers the whole step.
        y: Tensor = model(x)
        return y.square().mean()

    backend = fxremat.backend(0.5, inner="eager")
    compiled = torch.compile(loss, backend=backend)

    def step(run: Callable[[Tensor], Tensor]) -> None:
        model.zero_grad()
        run(batch).backward()

    step(compiled)  # the first call compiles
    plan = backend.plans[0]
    print(f"eager:    {peak_bytes(lambda: step(loss)) / 2**20:6.1f} MiB measured")
    print(f"fxremat:  {peak_bytes(lambda: step(compiled)) / 2**20:6.1f} MiB measured")
    print(f"plan:     {plan.predicted_peak / 2**20:6.1f} MiB predicted")
    print(f"budget:   {(plan.budget or 0) / 2**20:6.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
