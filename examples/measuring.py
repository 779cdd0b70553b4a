"""Two measurements that the examples share: peak bytes and relative step time, on the CPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import accumulate

from torch.profiler import ProfilerActivity, profile

TIMED_PAIRS = 5


def allocator_peak(step: Callable[[], object]) -> int:
    """Most bytes that ``step`` holds above what exists before, from the allocator's events."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        kept = step()
    events = record.profiler.kineto_results.events()
    memory = ((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    del kept
    sizes: list[int] = [size for _, size in sorted(memory)]
    return max(accumulate(sizes))


def time_ratio(step: Callable[[], object], reference: Callable[[], object]) -> float:
    """Time of ``step`` over ``reference``: the median of pairs, so that drift cancels."""
    ratios = []
    for _ in range(TIMED_PAIRS):
        marks = [time.perf_counter()]
        for run in (reference, step):
            run()
            marks.append(time.perf_counter())
        ratios.append((marks[2] - marks[1]) / (marks[1] - marks[0]))
    return statistics.median(ratios)
