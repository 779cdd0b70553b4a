"""What a step really takes: peak bytes, and time as a ratio to another step's."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import accumulate

import torch
from torch.profiler import ProfilerActivity, profile

__all__ = ["peak_bytes", "time_ratio"]

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
