"""What a plan is about, as plain data: the problem that it solves, and where its ops come from.

A plan's decision names ops and values. With its context it can be explained, drawn and planned anew
from its file, without torch, the model or the machine that made it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from fxremat.base.units import format_bytes
from fxremat.problem.types import Problem

__all__ = ["Context", "Origin", "Resident"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a node of the joint graph comes from.

    Attributes:
        op: what it calls, such as ``aten.mm``; ``input`` or ``tangent`` for what is handed in.
        shape: dtype and sizes of its result, such as ``f32[8, 16]``.
        module: path of the module that it was traced in, such as ``blocks.0.attn``, or "". A node
            of the backward has that of the forward op whose derivative it is part of.
        source: file and line that called it, such as ``model.py:34``, or "".
        code: the text of that line, or "".
    """

    op: str
    shape: str
    module: str = ""
    source: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class Resident:
    """Bytes that a training step holds besides the peak of its plan.

    Attributes:
        parameters: of the module's parameters.
        buffers: of its buffers.
        inputs: of the step's arguments.
        gradients: of the gradients of its parameters. They are part of a plan's peak, unless they
            are kept from step to step.
        optimizer: of the optimizer's state.
        optimizer_peak: what the optimizer's step takes while it runs.
        optimizer_name: its class.
        accumulates: gradients of earlier steps are there while a step runs.
    """

    parameters: int
    buffers: int
    inputs: int
    gradients: int
    optimizer: int = 0
    optimizer_peak: int = 0
    optimizer_name: str = ""
    accumulates: bool = False

    @property
    def during(self) -> int:
        """Bytes held while forward and backward run, besides the peak of their plan."""
        kept = self.gradients if self.accumulates else 0
        return self.parameters + self.buffers + self.inputs + self.optimizer + kept

    def total(self, peak: int) -> int:
        """Most bytes that the whole step holds, if forward and backward peak at ``peak``."""
        update = self.parameters + self.buffers + self.optimizer + self.gradients
        return max(self.during + peak, update + self.inputs + self.optimizer_peak)

    def __str__(self) -> str:
        """The parts in one line."""
        state = f"{self.optimizer_name} {format_bytes(self.optimizer)}"
        within = "" if self.accumulates else " (within the peak)"
        parts = [
            f"parameters {format_bytes(self.parameters)}",
            f"gradients {format_bytes(self.gradients)}{within}",
            *([state] if self.optimizer_name else []),
            *([f"buffers {format_bytes(self.buffers)}"] if self.buffers else []),
            f"inputs {format_bytes(self.inputs)}",
        ]
        return ", ".join(parts)


@dataclass(frozen=True)
class Context:
    """What a plan is about.

    Attributes:
        problem: the problem that the plan solves.
        origins: where ops and values come from, by name.
        device: name of the device profile that gave the times.
        inner: what compiles the halves: "inductor", "eager" or "callable".
        weights: factor on an op's cost from the user's preferences, by name.
        resident: what the step holds besides, where that is known.
        unmeasured: names of ops of which it is not known what they hold while they run, beside
            inputs and outputs; they might take more than was counted.
    """

    problem: Problem
    origins: Mapping[str, Origin]
    device: str = ""
    inner: str = ""
    weights: Mapping[str, float] = field(default_factory=dict)
    resident: Resident | None = None
    unmeasured: tuple[str, ...] = ()

    @cached_property
    def guesses(self) -> str:
        """Which ops those are, in words; empty where there are none."""
        if not self.unmeasured:
            return ""
        kinds = sorted({self.origin(name).op for name in self.unmeasured})
        return f"workspace of {len(self.unmeasured)} ops ({', '.join(kinds)})"

    @cached_property
    def op_index(self) -> dict[str, int]:
        """Index of each op by name."""
        return {op.name: index for index, op in enumerate(self.problem.ops)}

    @cached_property
    def value_index(self) -> dict[str, int]:
        """Index of each value by name."""
        return {value.name: index for index, value in enumerate(self.problem.values)}

    @cached_property
    def priced(self) -> Problem:
        """The problem with what the user prefers in the times of ops; solvers see these alone."""
        if not self.weights:
            return self.problem
        ops = (
            replace(o, seconds=o.seconds * self.weights.get(o.name, 1)) for o in self.problem.ops
        )
        return replace(self.problem, ops=tuple(ops))

    def origin(self, name: str) -> Origin:
        """Where a node comes from; an empty origin for one that is not known."""
        return self.origins.get(name) or Origin("", "")
