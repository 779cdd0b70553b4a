"""One training step in four ways, side by side: the table that the examples of libraries print.

    eager            as the library trains by itself
    checkpointing    with activation checkpointing, as users of the library turn it on
    fxremat (peak)   within the peak that checkpointing was measured at
    fxremat 0.5      within half of the peak that the step has when nothing is recomputed

Each is a process of its own, since a peak can be measured once in a process, and trains the same
weights on the same batches:

    budget, predicted   peaks in MiB: what was allowed, and what the plan promised
    peak                measured from the allocator's own events, in MiB
    time                of a step, over eager's in the same process: median of interleaved pairs
    loss                at the last step

A peak counts the bytes above what exists when the step starts.
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import fxremat
from fxremat.base.measure import peak_bytes, time_ratio
from fxremat.base.units import table

__all__ = ["Row", "Way", "compare", "in_process", "measured", "options"]

MIB = 2**20
HEAD = ("run", "budget", "predicted", "peak", "time", "loss")


@dataclass(frozen=True)
class Way:
    """How a process trains: with checkpointing, within a budget, or (with neither) as it is."""

    checkpointing: bool = False
    budget: str | int | None = None


@dataclass(frozen=True)
class Row:
    """What a process found. Peaks in bytes, None where there is no plan; time as a ratio."""

    budget: int | None
    predicted: int | None
    peak: int
    time: float
    losses: Sequence[float]


def options(text: str | None, *, pairs: int = 9) -> argparse.ArgumentParser:
    """A command line with what these examples share; ``text`` is the docstring of the example."""
    made = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--inner", default="eager", choices=("eager", "inductor"))
    made.add_argument("--pairs", type=int, default=pairs, help="steps timed; 0 for no times")
    made.add_argument("--batch", type=int, default=8)
    made.add_argument("--steps", type=int, default=4, help="steps trained before measuring")
    return made


def measured(
    losses: Sequence[float],
    backend: fxremat.Backend | None,
    step: Callable[[], object],
    eager: Callable[[], object] | None,
    pairs: int,
) -> Row:
    """Measure a step that has run before.

    Args:
        losses: those of the training so far.
        backend: what the step was compiled with, or None.
        step: one forward and backward.
        eager: the same as the library does it by itself; None if the step is just that.
        pairs: how often both are timed.
    """
    plans = [] if backend is None else backend.plans
    peak = peak_bytes(step)
    time = 1.0 if eager is None or not pairs else time_ratio(step, eager, pairs)
    predicted = max((plan.predicted_peak for plan in plans), default=None)
    return Row(plans[0].budget if plans else None, predicted, peak, time, losses)


def in_process(train: Callable[[Way], Row], way: Way, preload: Sequence[str] = ()) -> Row:
    """Train and measure in a fresh process.

    Args:
        train: a function of a module, or a partial of one.
        way: what it is called with.
        preload: modules that take long to import; they are imported once for all processes.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fxremat", *preload])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(train, way).result()


def compare(train: Callable[[Way], Row], preload: Sequence[str] = (), beside: int = 0) -> int:
    """Train in all four ways and print the table.

    Args:
        train: as for in_process.
        preload: as for in_process.
        beside: bytes that the library itself holds in a step, outside of what is compiled.

    Returns:
        The exit code of the example: 1 if a peak is above its budget and what is beside it.
    """
    rows = {"eager": in_process(train, Way(), preload)}
    theirs = rows["checkpointing"] = in_process(train, Way(checkpointing=True), preload)
    ours = rows["fxremat (peak)"] = in_process(train, Way(budget=theirs.peak), preload)
    rows["fxremat 0.5"] = in_process(train, Way(budget="0.5"), preload)
    print(table(HEAD, [_cells(name, row) for name, row in rows.items()]))
    print(
        f"In short: of {rows['eager'].peak / MIB:.2f} MiB, checkpointing leaves "
        f"{theirs.peak / MIB:.2f} at {theirs.time:.2f} of eager's time; within that, fxremat takes "
        f"{ours.time:.2f}."
    )
    return int(any(r.budget is not None and r.peak > r.budget + beside for r in rows.values()))


def _cells(name: str, row: Row) -> Sequence[str]:
    peaks = (row.budget, row.predicted, row.peak)
    sizes = ("" if size is None else f"{size / MIB:.2f}" for size in peaks)
    return (name, *sizes, f"{row.time:.2f}", f"{row.losses[-1]:.4f}")
