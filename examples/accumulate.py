"""Ask which micro-batch fits, then train with it: python examples/accumulate.py.

The model is planned on fake tensors at several sizes; the fastest that fits into the memory is
trained with gradient accumulation, and what the step really holds is measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import fxremat
from fxremat.base.measure import peak_bytes

MIB = 2**20


class Net(nn.Module):
    """Residual blocks and their loss."""

    def __init__(self, depth: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, 4 * width),
                nn.GELU(),
                nn.Linear(4 * width, width),
            )
            for _ in range(depth)
        )

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The mean square error, over all samples of a micro-batch."""
        for layer in self.layers:
            x = x + layer(x)
        return nn.functional.mse_loss(x, target)


def held(net: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Bytes of parameters, gradients and optimizer state."""
    grads = [p.grad for p in net.parameters() if p.grad is not None]
    state = [t for t in pytree.tree_leaves(list(optimizer.state.values())) if torch.is_tensor(t)]
    return sum(t.nbytes for t in (*net.parameters(), *grads, *state))


def main(argv: Sequence[str] | None = None) -> int:
    """Print the advice, and what training with it takes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--memory", default="96MiB", help="for all that a step holds")
    parser.add_argument("--target", type=int, default=256, help="samples to one update")
    parser.add_argument("--depth", type=int, default=8, help="residual blocks")
    parser.add_argument("--width", type=int, default=128, help="features")
    parser.add_argument("--length", type=int, default=64, help="positions of a sample")
    parser.add_argument("--updates", type=int, default=3, help="updates to train for")
    args = parser.parse_args(argv)

    torch.manual_seed(0)
    net = Net(args.depth, args.width)
    shape = (args.length, args.width)
    advice = fxremat.advise(
        net,
        lambda n: (torch.empty(n, *shape, device="meta"), torch.empty(n, *shape, device="meta")),
        memory=args.memory,
        target_batch=args.target,
        optimizer="AdamW",
        inner="eager",
    )
    print(advice)

    best = advice.best
    assert best.plan is not None  # it is the fastest of those that fit
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    compiled = torch.compile(net, backend=fxremat.backend(best.plan.budget, inner="eager"))
    data = torch.randn(args.target, *shape)
    goal = data.roll(1, 0)

    def micro(index: int) -> Tensor:
        part = slice(index * best.micro_batch, (index + 1) * best.micro_batch)
        loss: Tensor = compiled(data[part], goal[part]) / best.steps
        loss.backward()
        return loss.detach()

    for update in range(args.updates):
        loss = sum(float(micro(index)) for index in range(best.steps))
        optimizer.step()
        optimizer.zero_grad()
        print(f"update {update}: loss {loss:.4f}")

    if best.steps > 1:
        micro(0)  # so that there are gradients to add to
    inputs = 2 * best.micro_batch * args.length * args.width * 4
    total = held(net, optimizer) + inputs + peak_bytes(lambda: micro(best.steps - 1))
    print(f"advice:   {best.total / MIB:7.1f} MiB in all")
    print(f"measured: {total / MIB:7.1f} MiB of {advice.memory / MIB:.1f} MiB")
    return 0 if total <= advice.memory else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
