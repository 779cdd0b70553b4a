"""What a step really takes and gives: peak bytes, time as a ratio to another step's, gradients."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from itertools import accumulate

import torch
from torch.profiler import ProfilerActivity, profile

__all__ = ["largest_difference", "peak_bytes", "time_ratio"]

PAIRS = 5


def peak_bytes(step: Callable[[], object], device: str | torch.device = "cpu") -> int:
    """Most bytes that a step holds above what exists before it.

    On CUDA the allocator's own count is read. On the CPU it comes from the allocator's events,
    which torch's profiler records. They are wrong in a process that has recorded some before: torch
    remembers blocks that were freed outside of a recording. So measure once in a process.

    Args:
        step: what is run, once.
        device: where its tensors are.
    """
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        kept = step()
        torch.cuda.synchronize(device)
        del kept
        return torch.cuda.max_memory_allocated(device) - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        kept = step()
    events = record.profiler.kineto_results.events()
    memory = ((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    del kept
    sizes: list[int] = [size for _, size in sorted(memory)]
    return max(accumulate(sizes), default=0)


def largest_difference(right: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> float:
    """Largest difference between tensors, over the largest value among the right ones."""
    pairs = [(a, b) for a, b in zip(right, other, strict=True) if a.numel()]
    largest = max((float(a.abs().max()) for a, _ in pairs), default=0.0)
    apart = max((float((a - b).abs().max()) for a, b in pairs), default=0.0)
    return apart / largest if largest else apart


def time_ratio(
    step: Callable[[], object],
    reference: Callable[[], object],
    pairs: int = PAIRS,
    device: str | torch.device = "cpu",
) -> float:
    """Time of a step over another's: the median of interleaved pairs, so that drift cancels."""
    ratios = []
    for _ in range(pairs):
        marks = [_now(device)]
        for run in (reference, step):
            run()
            marks.append(_now(device))
        ratios.append((marks[2] - marks[1]) / (marks[1] - marks[0]))
    return statistics.median(ratios)


def _now(device: str | torch.device) -> float:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
