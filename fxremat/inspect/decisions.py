"""What a plan does with each value, and why: read off the plan, nothing is planned anew."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from fxremat.base.budget import format_bytes
from fxremat.base.units import count, format_seconds
from fxremat.plans.plan import Plan
from fxremat.problem.types import Kind, Phase, Problem

__all__ = ["Choice", "Verdict", "verdicts"]


class Choice(StrEnum):
    """What a plan does with a value."""

    SAVED = "saved"
    RECOMPUTED = "recomputed"
    UNNEEDED = "not needed"
    OUTPUT = "output"
    INPUT = "input"
    TANGENT = "tangent"
    BACKWARD = "backward"


PLAIN = {
    Choice.INPUT: "an input of the step exists anyway",
    Choice.TANGENT: "the caller hands it to the backward and holds it",
    Choice.OUTPUT: "the forward returns it, so the caller holds it anyway",
    Choice.UNNEEDED: "the backward does not need it",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a plan does with one value, and why.

    Attributes:
        name: the value.
        nbytes: its bytes; for inputs 0, since they exist anyway.
        choice: what is done with it.
        runs: how often it is computed in the backward beyond what every plan must do.
        rebuild: ops that would run to compute it again from what the plan keeps, in order; empty if
            nothing could.
        rebuild_seconds: their time; infinite if something in between may not run again.
        reason: the choice in words.
    """

    name: str
    nbytes: int
    choice: Choice
    runs: int
    rebuild: tuple[str, ...]
    rebuild_seconds: float
    reason: str


def verdicts(plan: Plan, schedule: Sequence[int]) -> dict[str, Verdict]:
    """What a plan does with each value, by its name, in graph order.

    Args:
        plan: a plan with its context.
        schedule: the backward's ops, by index.
    """
    judged = _Judged(plan, schedule)
    return {v.name: judged.verdict(i) for i, v in enumerate(judged.problem.values)}


class _Judged:
    """What is asked of a plan for each value, worked out once."""

    def __init__(self, plan: Plan, schedule: Sequence[int]) -> None:
        self.problem: Problem = plan.context.problem
        self.runs = plan.repeats
        saved = {plan.context.value_index[v.name] for v in plan.saved}
        values = self.problem.values
        there = {i for i, v in enumerate(values) if v.is_output or v.kind is not Kind.COMPUTED}
        self.kept = saved | there  # what the backward can read without running anything
        ops = (self.problem.ops[o] for o in schedule)
        self.read = {v for op in ops for v in (*op.inputs, *op.replay_inputs)}

    def verdict(self, index: int) -> Verdict:
        value, producer = self.problem.values[index], self.problem.producer[index]
        runs = self.runs.get(self.problem.ops[producer].name, 0) if producer >= 0 else 0
        choice = self._choice(index, producer, runs)
        rebuild, missing = self._closure(index)
        ops = [self.problem.ops[o] for o in rebuild]
        seconds = math.inf if missing else math.fsum(o.seconds for o in ops)
        names = () if missing else tuple(o.name for o in ops)
        reason = PLAIN.get(choice) or self._reason(index, choice, names, seconds, missing)
        return Verdict(value.name, value.nbytes, choice, runs, names, seconds, reason)

    def _choice(self, index: int, producer: int, runs: int) -> Choice:
        value = self.problem.values[index]
        if value.kind is not Kind.COMPUTED:
            return Choice.INPUT if value.kind is Kind.INPUT else Choice.TANGENT
        if self.problem.ops[producer].phase is Phase.BACKWARD:
            return Choice.BACKWARD
        if value.is_output:
            return Choice.OUTPUT
        if index in self.kept:
            return Choice.SAVED
        if index not in self.read:
            return Choice.UNNEEDED
        return Choice.RECOMPUTED if runs else Choice.BACKWARD

    def _closure(self, index: int) -> tuple[list[int], str]:
        """Ops that make a value from what is kept, in order; and what may not run again, if any."""
        found: set[int] = set()
        stack, missing = [index], ""
        while stack:
            value = stack.pop()
            op = self.problem.producer[value]
            if op < 0 or op in found or (value in self.kept and value != index):
                continue
            found.add(op)
            if self.problem.ops[op].fixed and not missing:
                missing = f"{self.problem.ops[op].name}: {self.problem.ops[op].fixed}"
            stack += [*self.problem.ops[op].inputs, *self.problem.ops[op].replay_inputs]
        return sorted(found), missing

    def _reason(
        self, index: int, choice: Choice, rebuild: tuple[str, ...], seconds: float, missing: str
    ) -> str:
        value, op = self.problem.values[index], self.problem.ops[self.problem.producer[index]]
        if choice is Choice.BACKWARD:
            first = "the backward computes it"
            late = op.phase is Phase.BACKWARD
            return first if late else f"{first}, for the first and only time"
        if choice is Choice.SAVED and op.fixed:
            return f"{op.name} may not run again: {op.fixed}"
        if choice is Choice.SAVED and missing:
            return f"it cannot be made again from what is kept: {missing}"
        if choice is Choice.RECOMPUTED and value.unsaveable:
            return f"it may not be saved: {value.unsaveable}"
        per = format_seconds(seconds / max(value.nbytes, 1) * 2**20)
        cost = (
            f"{format_seconds(seconds)} ({count(len(rebuild), 'op')}) for "
            f"{format_bytes(value.nbytes)}, {per} a MiB"
        )
        would = "would take" if choice is Choice.SAVED else "takes"
        return f"making it again {would} {cost}"
