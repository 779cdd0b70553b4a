"""What is live when: one interval for every copy of a value, over the whole step.

Positions count the ops of a step as the plan runs them: first those of the forward, then those of
the backward's schedule. The intervals and the workspaces add up to
:func:`fxremat.problem.replay.replay` at every position; they say whose bytes these are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from fxremat.problem.replay import copies, replay
from fxremat.problem.types import Kind, Phase, Problem

__all__ = ["Holding", "Interval", "Occupancy", "occupancy"]


class Holding(StrEnum):
    """Why a value is there."""

    SAVED = "saved"  # from the forward into the backward
    RECOMPUTED = "recomputed"  # made again in the backward
    GRADIENT = "gradient"  # returned by the backward
    TEMPORARY = "temporary"  # used up within the forward or within the backward
    OUTPUT = "output"  # returned by the forward, so the caller holds it
    TANGENT = "tangent"  # handed to the backward by the caller


@dataclass(frozen=True, slots=True)
class Interval:
    """One copy of a value.

    Attributes:
        value: index of the value.
        start: position at which it is made or handed in.
        end: last position at which it is there.
        nbytes: its bytes.
        holding: why it is there.
    """

    value: int
    start: int
    end: int
    nbytes: int
    holding: Holding


@dataclass(frozen=True)
class Occupancy:
    """What is live over one step.

    Attributes:
        ops: index of the op that runs at each position.
        boundary: the first position of the backward.
        intervals: all copies, by start.
        workspace: bytes that the op at each position holds on top.
        levels: bytes live at each position, workspace included.
    """

    ops: tuple[int, ...]
    boundary: int
    intervals: tuple[Interval, ...]
    workspace: tuple[int, ...]
    levels: tuple[int, ...]

    @cached_property
    def peak(self) -> int:
        """The first position at which most is live."""
        return max(range(len(self.levels)), key=lambda p: self.levels[p], default=0)

    def at(self, position: int) -> list[Interval]:
        """The copies that are live at a position, the largest first."""
        live = (i for i in self.intervals if i.start <= position <= i.end)
        return sorted(live, key=lambda i: (-i.nbytes, i.value))


def occupancy(problem: Problem, schedule: Sequence[int]) -> Occupancy:
    """What is live when a problem is run by a schedule.

    Raises:
        ValueError: if the schedule is not one of the problem.
    """
    line = replay(problem, schedule)
    ops = (*line.order, *schedule)
    begin, count = len(line.order), len(ops)
    late = copies(problem, schedule)
    ends = {c.value: begin + c.end for c in late if c.start < 0}
    found = _forward(problem, line.order, {v: ends[v] for v in line.saved}, count)
    returned = set(problem.ops[problem.backward[-1]].inputs) if problem.backward else set()
    for copy in late:
        if copy.start >= 0:
            holding = _made_late(problem, copy.value, returned)
            found.append(
                _interval(problem, copy.value, begin + copy.start, begin + copy.end, holding)
            )
    for value, known in enumerate(problem.values):
        if known.kind is Kind.TANGENT and count > begin:
            found.append(_interval(problem, value, begin, count - 1, Holding.TANGENT))
    again = [problem.ops[o].workspace + problem.ops[o].replay_workspace for o in schedule]
    return Occupancy(
        ops=ops,
        boundary=begin,
        intervals=tuple(sorted(found, key=lambda i: (i.start, i.value))),
        workspace=(*(problem.ops[o].workspace for o in line.order), *again),
        levels=(*line.forward, *line.backward),
    )


def _interval(problem: Problem, value: int, start: int, end: int, holding: Holding) -> Interval:
    return Interval(value, start, end, problem.values[value].nbytes, holding)


def _forward(
    problem: Problem, order: Sequence[int], saved: dict[int, int], count: int
) -> list[Interval]:
    born: dict[int, int] = {}
    last: dict[int, int] = {}
    for position, index in enumerate(order):
        for value in (*problem.ops[index].inputs, *problem.ops[index].outputs):
            last[value] = position
        born.update(dict.fromkeys(problem.ops[index].outputs, position))
    found = []
    for value, start in born.items():
        if problem.values[value].is_output:
            found.append(_interval(problem, value, start, count - 1, Holding.OUTPUT))
        elif value in saved:
            found.append(_interval(problem, value, start, saved[value], Holding.SAVED))
        else:
            found.append(_interval(problem, value, start, last[value], Holding.TEMPORARY))
    return found


def _made_late(problem: Problem, value: int, returned: set[int]) -> Holding:
    op = problem.producer[value]
    phase = problem.ops[op].phase
    if phase is Phase.BACKWARD:
        return Holding.GRADIENT if value in returned else Holding.TEMPORARY
    return Holding.TEMPORARY if op in problem.required else Holding.RECOMPUTED
