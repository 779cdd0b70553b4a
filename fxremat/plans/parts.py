"""The parts of a plan that files and other processes have: its decision and its prediction."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from fxremat.problem.context import Origin
from fxremat.problem.types import upgraded

__all__ = [
    "Decision",
    "Parts",
    "Prediction",
    "SavedValue",
    "upgraded_context",
    "upgraded_parts",
]

OLD_NAMES = {"schedule": "backward_schedule", "held": "reserved"}  # of format 4


@dataclass(frozen=True, slots=True)
class SavedValue:
    """A value that the forward hands to the backward.

    Attributes:
        name: node of the joint graph that yields it.
        nbytes: bytes that saving it costs; 0 if the step holds it anyway.
    """

    name: str
    nbytes: int


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What is saved and in which order the halves run: all that other processes need.

    Attributes:
        graph: fingerprint of the joint graph that it belongs to.
        budget: limit on the peak in bytes, or None for no limit.
        reserved: bytes that other graphs held for their backward when this one was planned; a
            budget for the step has been lowered by them.
        saved: values that the forward hands to the backward, in graph order.
        forward: ops in the order in which the forward runs them.
        backward_schedule: ops in the order in which the backward runs them, with repeats.
        recomputed: forward ops that the backward runs again, once for each further run.
        complete: False if a time limit stopped the search.
    """

    graph: str
    budget: int | None
    reserved: int = 0
    saved: tuple[SavedValue, ...]
    forward: tuple[str, ...]
    backward_schedule: tuple[str, ...]
    recomputed: tuple[str, ...]
    complete: bool = True


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What the step takes on the device that the plan was made for.

    Attributes:
        predicted_peak: most bytes that the region holds at one moment of the step.
        baseline_peak: the same for the plan that recomputes nothing.
        floor: bytes below which no plan of this graph can go.
        recompute_seconds: predicted time of the recomputed ops.
        lower_bound_seconds: time below which no plan within the budget can recompute.
        step_seconds: predicted time of a step that recomputes nothing.
        recompute_flops: floating-point operations of the recomputed ops.
    """

    predicted_peak: int
    baseline_peak: int
    floor: int
    recompute_seconds: float
    lower_bound_seconds: float
    step_seconds: float
    recompute_flops: int


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A plan without its context."""

    decision: Decision
    prediction: Prediction


def upgraded_parts(data: dict[str, Any]) -> dict[str, Any]:
    """The parts of a plan of formats 4 and 5, as JSON has them."""
    flat = {OLD_NAMES.get(name, name): given for name, given in data.items()}
    return {"decision": flat, "prediction": flat}


def upgraded_context(data: dict[str, Any]) -> dict[str, Any]:
    """The context of plans of formats 4 and 5, as JSON has it."""
    names = [f.name for f in fields(Origin)]
    origins = {
        name: dict(zip(names, given, strict=False)) for name, given in data["origins"].items()
    }
    return {**data, "problem": upgraded(data["problem"]), "origins": origins}
