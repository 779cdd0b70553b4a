"""Attributes of nodes and edges that stand for ops and values of a step.

They are listed in :mod:`fxremat.inspect.drawings.graphs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxremat.base.units import count, format_bytes, format_seconds
from fxremat.inspect.step import PlannedStep
from fxremat.problem.types import Kind, Op, Phase

__all__ = ["edge", "op_kind", "op_node", "value_node"]


def op_kind(step: PlannedStep, index: int) -> str:
    """The kind of an op, in the words of :data:`fxremat.inspect.drawings.style.NODES`."""
    op = step.problem.ops[index]
    made = [step.problem.values[v] for v in op.outputs]
    if op.phase is Phase.BACKWARD:
        return "gradient" if step.returned.intersection(op.outputs) else "backward"
    if index in step.runs:
        return "recomputed"
    if any(v in step.handed_on and not step.problem.values[v].is_output for v in op.outputs):
        return "saved"
    if any(v.is_output for v in made):
        return "output"
    if op.phase is Phase.FORWARD or index in step.in_forward:
        return "forward"
    return "late" if index in step.in_backward else "unused"


def op_node(step: PlannedStep, index: int, kind: str = "", **more: Any) -> dict[str, Any]:
    """Attributes of a node that stands for an op."""
    op = step.problem.ops[index]
    nbytes = sum(step.problem.values[v].nbytes for v in op.outputs)
    runs, time = step.runs.get(index, 0), format_seconds(op.seconds)
    costs = f"{format_bytes(nbytes)}, {time}" if nbytes else time
    again = f"runs again {count(runs, 'time')}" if runs else ""
    return {
        "label": op.name,
        "form": "op",
        "kind": kind or op_kind(step, index),
        "bytes": nbytes,
        "seconds": op.seconds,
        "runs": runs,
        "module": step.context.origin(op.name).module,
        "facts": f"{format_bytes(nbytes)}, {time}",
        "tip": _tip(step, op.name, costs, again, _why(step, op)),
        **more,
    }


def _why(step: PlannedStep, op: Op) -> str:
    """Why an op's results are saved or recomputed."""
    if not op.outputs or op.phase is Phase.BACKWARD:
        return ""
    return _reason(step, min(op.outputs, key=lambda v: v not in step.handed_on))


def _reason(step: PlannedStep, value: int) -> str:
    return step.decisions[step.problem.values[value].name].reason


def value_node(step: PlannedStep, index: int, kind: str = "", **more: Any) -> dict[str, Any]:
    """Attributes of a node that stands for a value."""
    value = step.problem.values[index]
    origin = step.context.origin(value.name)
    computed, size = value.kind is Kind.COMPUTED, format_bytes(value.nbytes)
    plain = ("output" if value.is_output else "saved") if computed else str(value.kind)
    return {
        "label": value.name,
        "form": "value",
        "kind": kind or plain,
        "bytes": value.nbytes,
        "seconds": 0.0,
        "runs": 0,
        "module": origin.module,
        "facts": size if computed else origin.shape,
        "tip": _tip(step, value.name, size if value.nbytes else "", _reason(step, index)),
        **more,
    }


def _tip(step: PlannedStep, name: str, *said: str) -> str:
    """All that is known of a node besides its label, in lines."""
    origin = step.context.origin(name)
    lines = [
        f"{origin.op} -> {origin.shape}" if origin.shape else origin.op,
        f"in {origin.module}" if origin.module else "",
        f"at {origin.source}" if origin.source else "",
        *said,
    ]
    return "\n".join(line for line in lines if line)


def edge(step: PlannedStep, values: Sequence[int], kind: str) -> dict[str, Any]:
    """Attributes of an edge that stands for values that one op makes and another one reads."""
    names = tuple(step.problem.values[v].name for v in values)
    nbytes = sum(step.problem.values[v].nbytes for v in values)
    why = _reason(step, values[0]) if kind in ("saved", "recomputed", "held") else ""
    return {
        "values": names,
        "bytes": nbytes,
        "kind": kind,
        "cut": kind in ("saved", "held"),
        "facts": format_bytes(nbytes),
        "tip": "\n".join(line for line in (", ".join(names), format_bytes(nbytes), why) if line),
    }
