"""Exact replay of a schedule to the bytes that are live at every moment of the step.

This is the referee of every solver: short, plain and independent of how a schedule was found. The
memory model is that of ``docs/memory-model`` in one paragraph: while an op runs, its inputs, its
outputs and its workspace are live; a value is live from its op to its last use before the next
copy of it; what the forward returns lives to the end of the step; inputs of the step cost nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fxremat.problem.types import Kind, Op, Phase, Problem

__all__ = ["Copy", "Timeline", "copies", "replay"]


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of a value in the backward.

    Attributes:
        value: index of the value.
        start: position in the schedule at which it is made; -1 if it is saved or handed in.
        end: position of its last use before the next copy, at least ``start``.
        uses: positions at which it is read.
    """

    value: int
    start: int
    end: int
    uses: tuple[int, ...]


@dataclass(frozen=True)
class Timeline:
    """Live bytes over one step.

    Attributes:
        forward: bytes live while each op of ``order`` runs, hoisted ops included.
        order: indices of the ops that the forward runs.
        backward: bytes live while each op of the schedule runs.
        saved: values that the forward hands to the backward and that the step would not hold
            anyway, in order of their index.
        hoisted: DEFERRABLE ops that run in the forward since their result is saved.
        recompute_seconds: time of all runs beyond those that every plan must make.
        recompute_flops: floating-point operations of those runs.
    """

    forward: tuple[int, ...]
    order: tuple[int, ...]
    backward: tuple[int, ...]
    saved: tuple[int, ...]
    hoisted: tuple[int, ...]
    recompute_seconds: float
    recompute_flops: int

    @property
    def peak(self) -> int:
        """Most bytes live at one moment of the step."""
        return max(max(self.forward, default=0), max(self.backward, default=0))


def copies(problem: Problem, schedule: Sequence[int]) -> list[Copy]:
    """All copies of values that a schedule reads or makes, ordered by start, then by value."""
    uses: dict[int, list[int]] = {}
    start: dict[int, int] = {}
    done: list[Copy] = []

    def close(value: int) -> None:
        if value in start:
            begin, read = start.pop(value), tuple(uses.pop(value))
            done.append(Copy(value, begin, max((begin, *read)), read))

    for position, index in enumerate(schedule):
        op = problem.ops[index]
        for value in (*op.inputs, *op.replay_inputs):
            if value not in start:
                start[value], uses[value] = -1, []
            uses[value].append(position)
        for value in op.outputs:
            close(value)
            start[value], uses[value] = position, []
    for value in list(start):
        close(value)
    return sorted(done, key=lambda c: (c.start, c.value))


def replay(problem: Problem, schedule: Sequence[int]) -> Timeline:
    """Replay a schedule.

    Args:
        problem: the problem.
        schedule: indices of ops in the order in which the backward runs them.

    Returns:
        The live bytes at every position and what the schedule implies.

    Raises:
        ValueError: if the schedule is not one of the problem: a backward op missing, repeated or
            out of order, an op run again that may not be, a value read that may not be saved.
    """
    _check(problem, schedule)
    found = copies(problem, schedule)
    saved = sorted(
        c.value for c in found if c.start < 0 and problem.values[c.value].kind is Kind.COMPUTED
    )
    for value in saved:
        if problem.values[value].unsaveable:
            reason = problem.values[value].unsaveable
            raise ValueError(f"{problem.values[value].name} may not be saved: {reason}")
    hoisted = _hoisted(problem, saved)
    for index in sorted(hoisted.intersection(schedule)):
        if problem.ops[index].fixed:
            raise _again(problem.ops[index])
    order = tuple(
        o for o in problem.forward if problem.ops[o].phase is Phase.FORWARD or o in hoisted
    )
    extra = _extra(problem, (*schedule, *hoisted))
    return Timeline(
        forward=_forward(problem, order, set(saved)),
        order=order,
        backward=_backward(problem, schedule, found),
        saved=tuple(v for v in saved if not problem.values[v].is_output),
        hoisted=tuple(sorted(hoisted)),
        recompute_seconds=math.fsum(n * problem.ops[o].seconds for o, n in extra.items()),
        recompute_flops=sum(n * problem.ops[o].flops for o, n in extra.items()),
    )


def _extra(problem: Problem, runs: Sequence[int]) -> dict[int, int]:
    """How often each op runs beyond what every plan must run."""
    count = Counter(o for o in runs if problem.ops[o].phase is not Phase.BACKWARD)
    return {o: n - (o in problem.required) for o, n in count.items()}


def _check(problem: Problem, schedule: Sequence[int]) -> None:
    if tuple(o for o in schedule if problem.ops[o].phase is Phase.BACKWARD) != problem.backward:
        raise ValueError("the schedule must run every backward op once, in the problem's order")
    seen: set[int] = set()
    for index in schedule:
        op = problem.ops[index]
        again = op.phase is Phase.FORWARD or index in seen
        if op.fixed and again and op.phase is not Phase.BACKWARD:
            raise _again(op)
        if op.phase is Phase.REPLAY_SUPPORT:
            raise ValueError(f"{op.name} runs in the forward alone")
        seen.add(index)


def _again(op: Op) -> ValueError:
    return ValueError(f"{op.name} may not run again: {op.fixed}")


def _hoisted(problem: Problem, saved: Sequence[int]) -> set[int]:
    """DEFERRABLE and REPLAY_SUPPORT ops that the forward must run to save these values."""
    found: set[int] = set()
    stack = [problem.producer[v] for v in saved]
    while stack:
        index = stack.pop()
        if index < 0 or index in found:
            continue
        if problem.ops[index].phase in (Phase.DEFERRABLE, Phase.REPLAY_SUPPORT):
            found.add(index)
            stack.extend(problem.producer[v] for v in problem.ops[index].inputs)
    return found


def _forward(problem: Problem, order: Sequence[int], saved: set[int]) -> tuple[int, ...]:
    last: dict[int, int] = {}
    born: dict[int, int] = {}
    for position, index in enumerate(order):
        for value in problem.ops[index].inputs:
            last[value] = position
        for value in problem.ops[index].outputs:
            last[value] = born[value] = position
    delta = [0] * (len(order) + 1)
    for value, begin in born.items():
        kept = value in saved or problem.values[value].is_output
        delta[begin] += problem.values[value].nbytes
        delta[len(order) if kept else last[value] + 1] -= problem.values[value].nbytes
    return _running(delta, [problem.ops[o].workspace for o in order])


def _backward(problem: Problem, schedule: Sequence[int], found: list[Copy]) -> tuple[int, ...]:
    delta = [0] * (len(schedule) + 1)
    delta[0] += sum(v.nbytes for v in problem.values if v.is_output or v.kind is Kind.TANGENT)
    for copy in found:
        value = problem.values[copy.value]
        free = value.kind is not Kind.COMPUTED or (value.is_output and copy.start < 0)
        if not free:
            delta[max(copy.start, 0)] += value.nbytes
            delta[copy.end + 1] -= value.nbytes
    ops = [problem.ops[o] for o in schedule]
    return _running(delta, [o.workspace + o.replay_workspace for o in ops])


def _running(delta: list[int], workspace: list[int]) -> tuple[int, ...]:
    level, found = 0, []
    for change, extra in zip(delta, workspace, strict=False):
        level += change
        found.append(level + extra)
    return tuple(found)
