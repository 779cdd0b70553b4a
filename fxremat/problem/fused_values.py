"""Schedules in which fused values are computed from the latest copies of what they read.

A fused value is computed within the kernels that read it (:mod:`fxremat.frontend.fusion`) and takes
no memory. So a schedule may read it after its sources were dropped and recomputed. The generated
code would then keep the old copy of a source alive, which the replay does not count. To prevent
that, the op of the fused value runs again from the new copy, at its small price.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxremat.problem.types import Phase, Problem

__all__ = ["recompute_fused_values"]


def recompute_fused_values(problem: Problem, schedule: Sequence[int]) -> tuple[int, ...]:
    """A schedule with further runs of the ops of fused values where a source is a newer copy.

    Args:
        problem: the problem.
        schedule: indices of ops in the order in which the backward runs them.
    """
    fused = {i for i, value in enumerate(problem.values) if value.fused}
    if not fused:
        return tuple(schedule)
    version = [0] * len(problem.values)
    seen: dict[int, list[int]] = {}  # versions of what a fused value was computed from
    found: list[int] = []

    def stale(value: int) -> bool:
        maker = problem.ops[problem.producer[value]]
        if maker.phase is Phase.BACKWARD:  # it runs once
            return False
        return seen.get(value) != [version[v] for v in maker.inputs]

    for index in schedule:
        waiting = [index]
        while waiting:
            op = problem.ops[waiting[-1]]
            first = next((v for v in op.inputs if v in fused and stale(v)), None)
            if first is not None:
                waiting.append(problem.producer[first])
                continue
            found.append(waiting.pop())
            for value in op.outputs:
                version[value] += 1
                if value in fused:
                    seen[value] = [version[v] for v in op.inputs]
    return tuple(found)
