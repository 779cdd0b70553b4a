"""What drawings ask of a plan: what runs where, which copy is read, and in which colour."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from fxremat.base.budget import format_bytes
from fxremat.base.units import count, format_seconds
from fxremat.inspect.explain import Explainer
from fxremat.plans.plan import Plan
from fxremat.problem.context import Context
from fxremat.problem.replay import copies
from fxremat.problem.types import Kind, Op, Phase, Problem

__all__ = ["Facts"]


class Facts:
    """Answers about one plan.

    Args:
        plan: a plan with its context.
        explainer: one of that plan, if there is one already: it keeps what it has worked out.

    Raises:
        OptionError: if the plan has no context.
    """

    def __init__(self, plan: Plan, explainer: Explainer | None = None) -> None:
        self.plan = plan
        self.context: Context = plan.context
        self.problem: Problem = self.context.problem
        self.explainer = explainer or Explainer(plan)

    @cached_property
    def forward(self) -> tuple[int, ...]:
        """The forward's ops, by index."""
        return tuple(self.context.op_index[name] for name in self.plan.forward)

    @cached_property
    def schedule(self) -> tuple[int, ...]:
        """The backward's ops, by index, but for the one that only returns the gradients."""
        return tuple(i for i in self.explainer.schedule if i not in self.returning)

    @cached_property
    def runs(self) -> dict[int, int]:
        """How often ops run beyond what every plan must do."""
        return {self.context.op_index[name]: n for name, n in self.plan.repeats.items()}

    @cached_property
    def saved(self) -> frozenset[int]:
        """Computed values that the forward hands to the backward, held ones among them."""
        found = (c.value for c in copies(self.problem, self.explainer.schedule) if c.start < 0)
        return frozenset(v for v in found if self.problem.values[v].kind is Kind.COMPUTED)

    @cached_property
    def reads(self) -> list[dict[int, int]]:
        """For each run of the schedule the positions that made what it reads; -1 if none did."""
        found: list[dict[int, int]] = [{} for _ in self.explainer.schedule]
        for copy in copies(self.problem, self.explainer.schedule):
            for position in copy.uses:
                found[position][copy.value] = copy.start
        return found

    @cached_property
    def returning(self) -> frozenset[int]:
        """The op that only returns the gradients, if there is one: it does no work."""
        last = self.problem.backward[-1:]
        idle = (i for i in last if not (self.problem.ops[i].outputs or self.problem.ops[i].seconds))
        return frozenset(idle)

    @cached_property
    def returns(self) -> frozenset[int]:
        """Values that the backward returns."""
        return frozenset(v for i in self.returning for v in self.problem.ops[i].inputs)

    @cached_property
    def in_forward(self) -> frozenset[int]:
        """Ops that the forward runs."""
        return frozenset(self.forward)

    @cached_property
    def in_backward(self) -> frozenset[int]:
        """Ops that the schedule runs."""
        return frozenset(self.schedule)

    # Kinds.

    def op_kind(self, index: int) -> str:
        """The kind of an op, in the words of :data:`fxremat.inspect.drawings.style.NODES`."""
        op = self.problem.ops[index]
        if op.phase is Phase.BACKWARD:
            return "gradient" if self.returns.intersection(op.outputs) else "backward"
        if index in self.runs:
            return "recomputed"
        if any(v in self.saved and not self.problem.values[v].is_output for v in op.outputs):
            return "saved"
        if any(self.problem.values[v].is_output for v in op.outputs):
            return "output"
        if op.phase is Phase.FORWARD or index in self.in_forward:
            return "forward"
        return "late" if index in self.in_backward else "unused"

    # Attributes of nodes and edges.

    def op_node(self, index: int, **more: Any) -> dict[str, Any]:
        """Attributes of a node that stands for an op."""
        op, origin = self.problem.ops[index], self.context.origin(self.problem.ops[index].name)
        nbytes = sum(self.problem.values[v].nbytes for v in op.outputs)
        known = {
            "label": op.name,
            "form": "op",
            "kind": self.op_kind(index),
            "bytes": nbytes,
            "seconds": op.seconds,
            "runs": self.runs.get(index, 0),
            "op": origin.op,
            "shape": origin.shape,
            "module": origin.module,
            "source": origin.source,
            "reason": self._why(op),
            "facts": f"{format_bytes(nbytes)}, {format_seconds(op.seconds)}",
        }
        return {**known, **more}

    def _why(self, op: Op) -> str:
        """Why an op's results are saved or recomputed."""
        if not op.outputs or op.phase is Phase.BACKWARD:
            return ""
        first = min(op.outputs, key=lambda v: v not in self.saved)
        return self.reason(first)

    def reason(self, value: int) -> str:
        """Why a value is saved or recomputed."""
        return self.explainer.verdicts[self.problem.values[value].name].reason

    def value_node(self, index: int, **more: Any) -> dict[str, Any]:
        """Attributes of a node that stands for a value."""
        value = self.problem.values[index]
        origin = self.context.origin(value.name)
        known = {
            "label": value.name,
            "form": "value",
            "kind": self._value_kind(index),
            "bytes": value.nbytes,
            "seconds": 0.0,
            "runs": 0,
            "op": origin.op,
            "shape": origin.shape,
            "module": origin.module,
            "source": origin.source,
            "reason": self.reason(index),
            "facts": format_bytes(value.nbytes) if value.kind is Kind.COMPUTED else origin.shape,
        }
        return {**known, **more}

    def _value_kind(self, index: int) -> str:
        value = self.problem.values[index]
        if value.kind is not Kind.COMPUTED:
            return str(value.kind)
        return "output" if value.is_output else "saved"

    def edge(self, values: list[int], kind: str, *, cut: bool = False) -> dict[str, Any]:
        """Attributes of an edge that stands for values that one op makes and another one reads."""
        known = [self.problem.values[v] for v in values]
        nbytes = sum(v.nbytes for v in known)
        return {
            "values": tuple(v.name for v in known),
            "bytes": nbytes,
            "kind": kind,
            "cut": cut,
            "facts": format_bytes(nbytes),
            "reason": self.reason(values[0]) if kind in ("saved", "recomputed", "held") else "",
        }

    # Words.

    def notes(self) -> tuple[str, ...]:
        """The plan in two lines."""
        plan = self.plan
        limit = "no budget" if plan.budget is None else f"budget {format_bytes(plan.budget)}"
        return (
            f"peak {format_bytes(plan.predicted_peak)} ({limit}), "
            f"{format_bytes(plan.baseline_peak)} without recomputing; time {plan.overhead:+.1%}",
            f"{count(len(plan.saved), 'value')} saved ({format_bytes(plan.saved_bytes)}), "
            f"{count(len(plan.recomputed), 'run')} of {count(len(plan.repeats), 'op')} recomputed",
        )
