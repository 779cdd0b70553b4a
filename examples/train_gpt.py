"""Train a small GPT for real, within a memory budget, and compare.

    python examples/train_gpt.py                          # 0.4 of the peak without recomputing
    python examples/train_gpt.py --budget 90MiB --steps 200 --no-compare
    python examples/train_gpt.py --budget min --inner inductor

The text is on every machine: the source files of Python's standard library, read character by
character. Each row of the table is one run from the same seed over the same batches:

    baseline    predicted peak of a step that recomputes nothing
    budget      the peak that was allowed
    predicted   the peak that the plan promises
    measured    the peak of one forward and backward, from the allocator's own events
    time        step time over uncompiled eager, median of interleaved pairs
    loss        at the first step, and the mean of the last ten

A peak counts the bytes above what exists when the step starts: activations, temporaries and
gradients, but neither parameters nor optimizer state.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch._functorch.config as functorch_config
from torch import Tensor
from torch._dynamo.exc import BackendCompilerFailed
from tqdm import tqdm

import fxremat
from characters import batches, read_text
from fxremat.base.errors import RematError
from fxremat.base.measure import peak_bytes, time_ratio
from gpt import GPT

MIB = 2**20
HEADER = ("run", "baseline", "budget", "predicted", "measured", "time", "loss start", "loss end")


@dataclass(frozen=True)
class Settings:
    """What the command line says; see ``--help``."""

    budget: str
    inner: Literal["eager", "inductor"]
    steps: int
    layers: int
    width: int
    heads: int
    length: int
    batch: int
    rate: float
    compare: bool
    seed: int
    threads: int


@dataclass(frozen=True)
class Row:
    """One run. Peaks in bytes (None where the run has no such number), time as a ratio."""

    name: str
    baseline: int | None
    budget: int | None
    predicted: int | None
    measured: int
    time: float
    start: float
    end: float


def train(name: str, backend: Any, data: tuple[Tensor, int], settings: Settings) -> Row:
    """Train from the seed with a backend of torch.compile (None: uncompiled), then measure."""
    torch.compiler.reset()
    torch.manual_seed(settings.seed)
    model = GPT(data[1], settings.layers, settings.width, settings.heads, settings.length)
    run = model if backend is None else torch.compile(model, backend=backend)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.rate, betas=(0.9, 0.95))
    sizes = {"length": settings.length, "batch": settings.batch}
    source = batches(data[0], **sizes, seed=settings.seed)
    losses = []
    with tqdm(range(settings.steps), desc=name, unit="step", leave=False) as bar:
        for _ in bar:
            loss = run(*next(source))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            bar.set_postfix_str(f"loss {losses[-1]:.3f}")
    del loss
    x, y = next(source)

    def step(call: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        optimizer.zero_grad()
        loss = call(x, y)
        loss.backward()
        return loss

    measured = peak_bytes(lambda: step(run))
    ratio = 1.0 if backend is None else time_ratio(lambda: step(run), lambda: step(model))
    start, end = losses[0], statistics.mean(losses[-10:])
    plans = getattr(backend, "plans", None)
    if not plans:  # not ours
        return Row(name, None, None, None, measured, ratio, start, end)
    plan = plans[0]  # the model is one graph
    peaks = (plan.baseline_peak, plan.budget, plan.predicted_peak, measured)
    return Row(name, *peaks, ratio, start, end)


def run(settings: Settings) -> list[Row]:
    """The runs that the settings ask for: ours with the budget first, then what to compare it with.

    Ours goes first so that a budget that no plan meets is told at once.
    """
    data = read_text()
    budget = None if settings.budget == "none" else settings.budget
    ours = fxremat.backend(budget, inner=settings.inner)
    rows = [train(f"fxremat {settings.budget}", ours, data, settings)]
    if not settings.compare:
        return rows
    rows.insert(0, train("eager", None, data, settings))
    if budget is not None:
        unlimited = fxremat.backend(None, inner=settings.inner)
        rows.insert(1, train("fxremat none", unlimited, data, settings))
    # torch's own partitioner takes a fraction of the saved bytes, not a peak
    last = rows[-1]
    limit, baseline = last.budget, last.baseline
    fraction = 1.0 if limit is None or baseline is None else min(1.0, limit / baseline)
    if budget == "min":
        fraction = 0.0
    theirs = {"eager": "aot_eager_decomp_partition"}.get(settings.inner, settings.inner)
    with functorch_config.patch(activation_memory_budget=fraction):
        rows.append(train(f"torch {fraction:.2f}", theirs, data, settings))
    return rows


def table(rows: Sequence[Row]) -> str:
    """The rows as text, peaks in MiB; columns are at least two spaces apart."""
    lines = [HEADER]
    for r in rows:
        peaks = (mib(r.baseline), mib(r.budget), mib(r.predicted), mib(r.measured))
        lines.append((r.name, *peaks, f"{r.time:.2f}", f"{r.start:.4f}", f"{r.end:.4f}"))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join((line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])))
        for line in lines
    )


def mib(count: int | None) -> str:
    """Bytes in MiB, or "-" for a number that there is none of."""
    return "-" if count is None else f"{count / MIB:.2f}"


def summary(rows: Sequence[Row]) -> str:
    """One line that says what the numbers mean."""
    ours = [r for r in rows if r.predicted is not None][-1]
    part = ours.measured / (ours.baseline or ours.measured)
    text = (
        f"In short: with fxremat a step holds at most {mib(ours.measured)} MiB, {part:.2f} of the"
        f" {mib(ours.baseline)} MiB that it holds when nothing is recomputed, and takes"
        f" {ours.time:.2f} times as long as uncompiled eager"
    )
    if len(rows) == 1:
        return text + "."
    gap = abs(ours.end - rows[0].end)
    same = "exactly" if gap == 0.0 else f"to {gap:.1e}"
    return (
        f"{text}; its loss is eager's {same}; torch's own partitioner at"
        f" activation_memory_budget={rows[-1].name.split()[-1]} holds {mib(rows[-1].measured)} MiB"
        f" and takes {rows[-1].time:.2f} times as long."
    )


def parse(argv: Sequence[str] | None) -> Settings:
    """Read the command line; the defaults run in about two minutes on two cores."""
    parser = argparse.ArgumentParser(description="Train a small GPT within a memory budget.")
    add = parser.add_argument
    add("--budget", default="0.4", help="0.4 (of the baseline), 90MiB, bytes, min, or none")
    add("--inner", default="eager", choices=("eager", "inductor"), help="inner compiler")
    add("--steps", type=int, default=50, help="training steps")
    add("--layers", type=int, default=6, help="transformer blocks")
    add("--width", type=int, default=256, help="width of the residual stream")
    add("--heads", type=int, default=8, help="attention heads")
    add("--length", type=int, default=256, help="characters in a sequence")
    add("--batch", type=int, default=8, help="sequences in a batch")
    add("--rate", type=float, default=1e-3, help="learning rate")
    add("--compare", action=argparse.BooleanOptionalAction, default=True, help="other runs too")
    add("--seed", type=int, default=0, help="seed of weights and batches")
    add("--threads", type=int, default=0, help="threads of torch; 0 leaves torch's choice")
    return Settings(**vars(parser.parse_args(argv)))


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the table; 1 if fxremat says why the budget can't be had, else 0."""
    settings = parse(argv)
    if settings.threads:
        torch.set_num_threads(settings.threads)
    try:
        rows = run(settings)
    except RematError as error:  # found before anything is compiled
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except BackendCompilerFailed as error:  # found while the model is compiled
        cause = error.inner_exception
        if not isinstance(cause, RematError):
            raise
        print(f"{type(cause).__name__}: {cause}", file=sys.stderr)
        return 1
    print("Peaks of one forward and backward in MiB; time over uncompiled eager.\n")
    print(table(rows), summary(rows), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
