"""A step as a plan runs it: what runs where, what is live when, what becomes of each value.

All of it is read off the plan; nothing is planned anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from fxremat.base.units import count, format_bytes, format_seconds
from fxremat.plans.plan import Plan
from fxremat.problem.context import Context
from fxremat.problem.liveness import Occupancy, occupancy
from fxremat.problem.replay import copies
from fxremat.problem.types import Kind, Phase, Problem
from fxremat.solver.seeds.cuts import baseline

__all__ = ["Choice", "Decision", "PlannedStep"]


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
class Decision:
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


class PlannedStep:
    """A step as a plan runs it; ops and values are told by their index in the problem.

    Args:
        plan: the plan.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.context: Context = plan.context
        self.problem: Problem = self.context.problem

    @cached_property
    def forward(self) -> tuple[int, ...]:
        """The forward's ops, in order."""
        return tuple(self.context.op_index[name] for name in self.plan.forward)

    @cached_property
    def schedule(self) -> tuple[int, ...]:
        """The backward's ops, in order."""
        return tuple(self.context.op_index[name] for name in self.plan.backward_schedule)

    @cached_property
    def in_forward(self) -> frozenset[int]:
        """Ops that the forward runs."""
        return frozenset(self.forward)

    @cached_property
    def in_backward(self) -> frozenset[int]:
        """Ops that the backward runs."""
        return frozenset(self.schedule)

    @cached_property
    def runs(self) -> dict[int, int]:
        """How often ops run beyond what every plan must do."""
        return {self.context.op_index[name]: n for name, n in self.plan.repeats.items()}

    @cached_property
    def occupancy(self) -> Occupancy:
        """What is live when."""
        return occupancy(self.problem, self.schedule)

    @cached_property
    def before(self) -> Occupancy | None:
        """The same for the plan that recomputes nothing, where the rules allow one."""
        try:
            return occupancy(self.problem, baseline(self.problem))
        except ValueError:
            return None

    @cached_property
    def reads(self) -> list[dict[int, int]]:
        """For each run of the schedule the positions that made what it reads; -1 if none did."""
        found: list[dict[int, int]] = [{} for _ in self.schedule]
        for copy in copies(self.problem, self.schedule):
            for position in copy.uses:
                found[position][copy.value] = copy.start
        return found

    @cached_property
    def handed_on(self) -> frozenset[int]:
        """Computed values that the forward hands to the backward, its outputs among them."""
        found = {v for reads in self.reads for v, start in reads.items() if start < 0}
        return frozenset(v for v in found if self.problem.values[v].kind is Kind.COMPUTED)

    @cached_property
    def returning(self) -> frozenset[int]:
        """The op that only returns the gradients, if there is one: it does no work."""
        ops = self.problem.ops
        last = self.problem.backward[-1:]
        return frozenset(i for i in last if not (ops[i].outputs or ops[i].seconds))

    @cached_property
    def returned(self) -> frozenset[int]:
        """Values that the backward returns."""
        return frozenset(v for i in self.returning for v in self.problem.ops[i].inputs)

    # What is done with each value.

    @cached_property
    def decisions(self) -> dict[str, Decision]:
        """What is done with each value, by its name, in graph order."""
        return {v.name: self._decision(i) for i, v in enumerate(self.problem.values)}

    @cached_property
    def _kept(self) -> frozenset[int]:
        """What the backward can read without running anything."""
        saved = {self.context.value_index[v.name] for v in self.plan.saved}
        known = enumerate(self.problem.values)
        return frozenset(
            saved | {i for i, v in known if v.is_output or v.kind is not Kind.COMPUTED}
        )

    @cached_property
    def _read(self) -> frozenset[int]:
        return frozenset(v for reads in self.reads for v in reads)

    def _decision(self, index: int) -> Decision:
        value, producer = self.problem.values[index], self.problem.producer[index]
        choice = self._choice(index, producer)
        rebuild, missing = self._closure(index)
        ops = [self.problem.ops[o] for o in rebuild]
        seconds = math.inf if missing else math.fsum(o.seconds for o in ops)
        names = () if missing else tuple(o.name for o in ops)
        reason = PLAIN.get(choice) or self._reason(index, choice, len(names), seconds, missing)
        runs = self.runs.get(producer, 0)
        return Decision(value.name, value.nbytes, choice, runs, names, seconds, reason)

    def _choice(self, index: int, producer: int) -> Choice:
        value = self.problem.values[index]
        if value.kind is not Kind.COMPUTED:
            return Choice.INPUT if value.kind is Kind.INPUT else Choice.TANGENT
        if self.problem.ops[producer].phase is Phase.BACKWARD:
            return Choice.BACKWARD
        if value.is_output:
            return Choice.OUTPUT
        if index in self._kept:
            return Choice.SAVED
        if index not in self._read:
            return Choice.UNNEEDED
        return Choice.RECOMPUTED if producer in self.runs else Choice.BACKWARD

    def _closure(self, index: int) -> tuple[list[int], str]:
        """Ops that make a value from what is kept, in order; and what may not run again, if any."""
        found: set[int] = set()
        stack, missing = [index], ""
        while stack:
            value = stack.pop()
            op = self.problem.producer[value]
            if op < 0 or op in found or (value in self._kept and value != index):
                continue
            found.add(op)
            known = self.problem.ops[op]
            if known.fixed and not missing:
                missing = f"{known.name}: {known.fixed}"
            stack += [*known.inputs, *known.replay_inputs]
        return sorted(found), missing

    def _reason(self, index: int, choice: Choice, ops: int, seconds: float, missing: str) -> str:
        value, op = self.problem.values[index], self.problem.ops[self.problem.producer[index]]
        if choice is Choice.BACKWARD:
            late = op.phase is Phase.BACKWARD
            return "the backward computes it" + ("" if late else ", for the first and only time")
        if choice is Choice.SAVED and op.fixed:
            return f"{op.name} may not run again: {op.fixed}"
        if choice is Choice.SAVED and missing:
            return f"it cannot be made again from what is kept: {missing}"
        if choice is Choice.RECOMPUTED and value.unsaveable:
            return f"it may not be saved: {value.unsaveable}"
        would = "would take" if choice is Choice.SAVED else "takes"
        per = format_seconds(seconds / max(value.nbytes, 1) * 2**20)
        return (
            f"making it again {would} {format_seconds(seconds)} ({count(ops, 'op')}) for "
            f"{format_bytes(value.nbytes)}, {per} a MiB"
        )
