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

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from passes.phases import Phase

__all__ = ["Kind", "Op", "Phase", "Problem", "Value"]

FORMAT = 2
RENAMED = {"held": "is_output"}  # of format 1, and so are the phases below
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
    """

    name: str
    nbytes: int
    kind: Kind = Kind.COMPUTED
    is_output: bool = False
    unsaveable: str = ""


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
        again: indices of further values that it reads when it runs again.
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
    again: tuple[int, ...] = ()
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
    def needed(self) -> frozenset[int]:
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
        return sum(self.ops[o].seconds for o in (*forward, *sorted(self.needed), *self.backward))

    def to_json(self) -> str:
        """The problem as JSON text; :meth:`from_json` reads it back."""
        return json.dumps(self.to_data(), separators=(",", ":"))

    def to_data(self) -> dict[str, Any]:
        """The problem as what JSON can hold; :meth:`from_data` reads it back."""
        return {
            "format": FORMAT,
            "values": [_thin(asdict(v), Value) for v in self.values],
            "ops": [_thin(asdict(o), Op) for o in self.ops],
            "forward": self.forward,
            "backward": self.backward,
        }

    @classmethod
    def from_json(cls, text: str) -> Problem:
        """Read what :meth:`to_json` wrote.

        Raises:
            ValueError: if the text is not a problem or comes from another format.
        """
        return cls.from_data(json.loads(text))

    @classmethod
    def from_data(cls, data: Any) -> Problem:
        """Read what :meth:`to_data` made.

        Raises:
            ValueError: if it is not a problem or comes from another format.
        """
        if not isinstance(data, dict) or data.get("format") not in (1, FORMAT):
            raise ValueError(f"not a problem of format {FORMAT}; write it again with to_json()")
        return cls(
            values=tuple(_value(v) for v in data["values"]),
            ops=tuple(_op(o) for o in data["ops"]),
            forward=tuple(data["forward"]),
            backward=tuple(data["backward"]),
        )


def _thin(data: dict[str, Any], kind: type) -> dict[str, Any]:
    """Leave out what equals the default, so that big problems make small files."""
    fields = kind.__dataclass_fields__  # type: ignore[attr-defined]
    return {k: v for k, v in data.items() if v != fields[k].default}


def _value(data: dict[str, Any]) -> Value:
    data = {RENAMED.get(name, name): given for name, given in data.items()}
    return Value(**{**data, "kind": Kind(data.get("kind", Kind.COMPUTED))})


def _op(data: dict[str, Any]) -> Op:
    said = data.get("phase", Phase.FORWARD)
    phase = OLD_PHASES.get(said) or Phase(said)
    tuples = {name: tuple(data.get(name, ())) for name in ("inputs", "outputs", "again")}
    return Op(**{**data, **tuples, "phase": phase})


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
