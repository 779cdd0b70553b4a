"""Schedules in which values that take no memory are computed from what is there.

A value that is computed within the kernels that read it (:mod:`fxremat.frontend.fusion`) has no
bytes, so nothing in a schedule tells when it ends: its readers may read it long after what it was
computed from has been dropped and made again. In the code it would hold the old copy. So it is
computed again, at its small price, by the side of the new one.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxremat.problem.types import Phase, Problem

__all__ = ["FUSED", "fresh"]

FUSED = "it is computed within the kernels that read it"  # why such a value may not be saved


def fresh(problem: Problem, schedule: Sequence[int]) -> tuple[int, ...]:
    """A schedule with further runs of ops whose result takes no memory, where theirs are stale.

    Args:
        problem: the problem.
        schedule: indices of ops in the order in which the backward runs them.
    """
    fused = {i for i, value in enumerate(problem.values) if value.unsaveable == FUSED}
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
