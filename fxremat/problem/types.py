"""The rematerialization problem as plain data, without torch.

A :class:`Problem` is what is left of a joint graph once it has been costed and the rules have been
applied: values (one per storage; views vanish), ops (one per node that does work), the order in
which forward and backward run them, and what may be saved or recomputed. Solvers see nothing
else, so they are tested on problems drawn by hand, on random ones, and on fixtures: a problem of
a big model round-trips through JSON.

How a plan for a problem runs
-----------------------------
* The forward runs ``problem.forward`` in order. A value is live from its op to its last forward
  use, or to the end of the step if it is an *output* (returned to the caller), or into the backward
  if it is saved.
* The backward runs a *schedule*: a list of ops in which every op of ``problem.backward`` stands
  exactly once, in that order, and any op that is not a backward op may stand any number of times
  (each further run is a recompute). A use reads the latest copy; a use with no earlier run of the
  producer in the schedule reads the saved value. So a schedule determines what is saved.
* What the backward returns (the gradients) is read by its last op, which does no work: a value
  that is returned is thus live to the end.
* ``REPLAY_SUPPORT`` ops serve later runs of others alone, for instance by taking a copy of what the
  forward overwrites. They run in the forward, and only if their result is saved.
* ``DEFERRABLE`` ops depend on the inputs of the step alone but are read only by the backward, for
  instance ``1 - tanh(x)**2``. They run in the backward once in any case, at no extra price; if
  their result is saved they run in the forward, right after their last input (*hoisted*).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cached_property
from typing import Any

from fxremat.base.codec import decode, encode
from passes.phases import Phase

__all__ = ["FUSED", "Kind", "Op", "Phase", "Problem", "Value", "upgraded"]

FORMAT = 3
FUSED = "it is computed within the kernels that read it"  # why a fused value may not be saved
OLD_NAMES = {"held": "is_output", "again": "replay_inputs", "again_workspace": "replay_workspace"}
OLD_PHASES = {"early": Phase.REPLAY_SUPPORT, "either": Phase.DEFERRABLE}


class Kind(StrEnum):
    """Where a value comes from."""

    INPUT = "input"  # exists before the region is entered and after it is left: costs nothing
    TANGENT = "tangent"  # handed to the backward by its caller, who holds it until it returns
    COMPUTED = "computed"


@dataclass(frozen=True, slots=True)
class Value:
    """One storage.

    Attributes:
        name: name of the graph node that yields it.
        nbytes: what the allocator hands out for it, in bytes.
        kind: where it comes from.
        is_output: returned by the forward, so it lives to the end of the step and is free to save.
        unsaveable: why it may not be saved, or "".
        fused: it is computed within the kernels that read it, and so takes no memory.
    """

    name: str
    nbytes: int
    kind: Kind = Kind.COMPUTED
    is_output: bool = False
    unsaveable: str = ""
    fused: bool = False


@dataclass(frozen=True, slots=True)
class Op:
    """One node that does work.

    Attributes:
        name: name of the graph node.
        inputs: indices of the values it reads, each once, in order of first appearance.
        outputs: indices of the values it makes.
        seconds: predicted time of one run.
        flops: floating-point operations of one run.
        workspace: bytes it holds while it runs beyond its inputs and outputs.
        phase: where it runs when nothing is recomputed.
        fixed: why it may not be run again, or "".
        replay_inputs: indices of further values that it reads when it runs again.
        replay_workspace: bytes that it holds on top of its workspace when it runs again.
    """

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    seconds: float
    flops: int = 0
    workspace: int = 0
    phase: Phase = Phase.FORWARD
    fixed: str = ""
    replay_inputs: tuple[int, ...] = ()
    replay_workspace: int = 0


@dataclass(frozen=True)
class Problem:
    """Values, ops and orders; see the module docstring for what they mean.

    Attributes:
        values: all values; ops refer to them by index.
        ops: all ops; the orders refer to them by index.
        forward: order of the forward ops; DEFERRABLE and REPLAY_SUPPORT ops stand where they would
            run.
        backward: order of the backward ops, DEFERRABLE ops not among them.

    Raises:
        ValueError: if the data is not a problem: an index out of range, an op that reads a value
            made later, a value made twice.
    """

    values: tuple[Value, ...]
    ops: tuple[Op, ...]
    forward: tuple[int, ...]
    backward: tuple[int, ...]

    def __post_init__(self) -> None:
        _check(self)

    @cached_property
    def producer(self) -> tuple[int, ...]:
        """For each value the index of the op that makes it, or -1."""
        found = [-1] * len(self.values)
        for index, op in enumerate(self.ops):
            for value in op.outputs:
                found[value] = index
        return tuple(found)

    @cached_property
    def required(self) -> frozenset[int]:
        """Indices of the DEFERRABLE ops that the backward cannot do without."""
        found: set[int] = set()
        stack = list(self.backward)
        while stack:
            for value in self.ops[stack.pop()].inputs:
                op = self.producer[value]
                if op >= 0 and op not in found and self.ops[op].phase is Phase.DEFERRABLE:
                    found.add(op)
                    stack.append(op)
        return frozenset(found)

    @cached_property
    def step_seconds(self) -> float:
        """Predicted time of a step that recomputes nothing, in seconds."""
        forward = (o for o in self.forward if self.ops[o].phase is Phase.FORWARD)
        return sum(self.ops[o].seconds for o in (*forward, *sorted(self.required), *self.backward))

    def to_json(self) -> str:
        """The problem as JSON text; :meth:`from_json` reads it back."""
        return encode({"format": FORMAT, **{f.name: getattr(self, f.name) for f in fields(self)}})

    @classmethod
    def from_json(cls, text: str) -> Problem:
        """Read what :meth:`to_json` wrote.

        Raises:
            ValueError: if the text is not a problem or comes from another format.
        """
        return decode(text, cls, "a problem", {1: upgraded, 2: upgraded, FORMAT: dict})


def upgraded(data: dict[str, Any]) -> dict[str, Any]:
    """A problem of formats 1 and 2, as JSON has it, in the terms of the last one."""

    def renamed(item: dict[str, Any]) -> dict[str, Any]:
        found = {OLD_NAMES.get(name, name): given for name, given in item.items()}
        if found.get("unsaveable") == FUSED:
            found["fused"] = True
        phase = found.get("phase")
        return {**found, "phase": OLD_PHASES[phase]} if phase in OLD_PHASES else found

    return {**data, **{part: list(map(renamed, data[part])) for part in ("values", "ops")}}


def _check(problem: Problem) -> None:
    count = len(problem.values)
    made = [v.kind is Kind.INPUT for v in problem.values]

    def run(order: Iterable[int], *phases: Phase) -> None:
        for index in order:
            if not 0 <= index < len(problem.ops):
                raise ValueError(
                    f"the order names op {index}, but there are {len(problem.ops)} ops"
                )
            op = problem.ops[index]
            if op.phase not in phases:
                raise ValueError(f"{op.name}: a {op.phase} op may not stand in this order")
            for value in (*op.inputs, *op.outputs, *op.replay_inputs):
                if not 0 <= value < count:
                    raise ValueError(f"{op.name}: there is no value {value}, only {count} values")
            for value in (*op.inputs, *op.replay_inputs):
                if not made[value]:
                    name = problem.values[value].name
                    raise ValueError(f"{op.name} reads {name} before any op has made it")
            for value in op.outputs:
                if made[value]:
                    raise ValueError(f"{problem.values[value].name} is made twice ({op.name})")
                made[value] = True

    run(problem.forward, Phase.FORWARD, Phase.REPLAY_SUPPORT, Phase.DEFERRABLE)
    for index, value in enumerate(problem.values):
        made[index] = made[index] or value.kind is Kind.TANGENT
    run(problem.backward, Phase.BACKWARD)
    if sorted((*problem.forward, *problem.backward)) != list(range(len(problem.ops))):
        raise ValueError("every op must stand exactly once, in the forward or the backward order")
