"""Train a small GPT on several processes within a memory budget, and compare with eager.

    torchrun --standalone --nproc-per-node 2 examples/distributed.py                # DDP
    torchrun --standalone --nproc-per-node 2 examples/distributed.py --mode fsdp    # FSDP2

With DDP the whole step is one graph, and the budget is for all of it. With FSDP2 the blocks are
compiled one by one, since their parameters are gathered between them, and the budget is for what
each block keeps for its backward. All ranks take one plan. Batches come from the source
files of Python's standard library, others on each rank. The peak that is printed is that of the
last step on rank 0, from the allocator's own events.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import fxremat
from characters import batches, read_text
from fxremat.base.measure import peak_bytes
from gpt import GPT

MIB = 2**20
Step = Callable[[Tensor, Tensor], Tensor]


def prepare(mode: str, model: Any, backend: fxremat.Backend | None) -> tuple[nn.Module, Step]:
    """Share a model out over the ranks; None for a backend leaves it uncompiled."""
    if mode == "ddp":
        wrapped = DistributedDataParallel(model)
        return wrapped, wrapped if backend is None else torch.compile(wrapped, backend=backend)
    for block in model.blocks:
        if backend is not None:
            block.compile(backend=backend)
        fully_shard(block)
    fully_shard(model)
    return model, model


def train(
    model: nn.Module, run: Step, data: tuple[Tensor, int], settings: argparse.Namespace
) -> list[float]:
    """Losses of this rank."""
    source = batches(data[0], length=settings.length, batch=settings.batch, seed=dist.get_rank())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, foreach=False)
    losses = []
    for _ in range(settings.steps):
        optimizer.zero_grad()
        loss = run(*next(source))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def peak(model: nn.Module, run: Step, data: tuple[Tensor, int], length: int, batch: int) -> int:
    """Measured peak of one more step, in bytes; once in a process."""
    x, y = next(batches(data[0], length=length, batch=batch, seed=0))
    model.zero_grad()
    return peak_bytes(lambda: run(x, y).backward())


def main(argv: Sequence[str] | None = None) -> int:
    """Train twice from one seed, uncompiled and compiled, and print both on rank 0."""
    settings = read(argv)
    if "RANK" not in os.environ:
        print("start it with torchrun --standalone --nproc-per-node 2", file=sys.stderr)
        return 2
    torch.set_num_threads(settings.threads)
    torch._dynamo.config.optimize_ddp = False  # one graph, not one for each bucket of gradients
    dist.init_process_group("gloo")
    data = read_text()
    if settings.mode == "ddp":
        backend = fxremat.backend(settings.budget, inner=settings.inner)
    else:  # blocks are graphs of their own: what each keeps for its backward adds up
        backend = fxremat.backend(None, regions={"*": settings.budget}, inner=settings.inner)
    found = []
    for used in (None, backend):
        torch.manual_seed(0)
        sizes = {k: getattr(settings, k) for k in ("layers", "width", "heads", "length")}
        model, run = prepare(settings.mode, GPT(data[1], **sizes), used)
        found.append(train(model, run, data, settings))
    measured = peak(model, run, data, settings.length, settings.batch)
    schedules: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(schedules, [p.backward_schedule for p in backend.plans])
    if dist.get_rank() == 0:
        report(found, backend.plans, measured, all(s == schedules[0] for s in schedules))
    dist.destroy_process_group()
    return 0


def report(
    found: list[list[float]], plans: Sequence[fxremat.Plan], measured: int, same: bool
) -> None:
    """Print losses, peaks and whether all ranks have the same plans."""
    for name, losses in zip(("eager", "fxremat"), found, strict=True):
        print(f"{name:<9} loss {losses[0]:.6f} at first, {losses[-1]:.6f} at last")
    apart = max(abs(a - b) for a, b in zip(*found, strict=True))
    print(f"losses differ by {apart:.1e} at most")
    for plan in plans:
        print(
            f"graph     peak {plan.predicted_peak / MIB:.2f} MiB predicted, "
            f"{plan.baseline_peak / MIB:.2f} without recomputing, "
            f"{plan.saved_bytes / MIB:.2f} kept for the backward"
        )
    print(f"step      peak {measured / MIB:.2f} MiB measured on rank 0")
    print(f"plans     {'the same on all ranks' if same else 'DIFFERENT from rank to rank'}")


def read(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mode", choices=("ddp", "fsdp"), default="ddp")
    parser.add_argument("--budget", default="0.6", help="as for fxremat.backend (default 0.6)")
    parser.add_argument("--inner", choices=("eager", "inductor"), default="eager")
    for name, value in (("steps", 8), ("layers", 3), ("width", 64), ("heads", 4)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--length", type=int, default=64, help="characters in a sample")
    parser.add_argument("--batch", type=int, default=8, help="samples for each rank")
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
