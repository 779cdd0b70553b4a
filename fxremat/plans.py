"""A plan: what is saved, in which order the backward computes, and what that is predicted to cost.

A plan names ops and values as the joint graph does, so it can be printed, compared, written to a
file and applied again to the same graph.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from .budget import format_bytes
from .detail import Detail

__all__ = ["Plan", "SavedValue", "summary"]

FORMAT = 4


@dataclass(frozen=True, slots=True)
class SavedValue:
    """A value that the forward hands to the backward.

    Attributes:
        name: node of the joint graph that yields it.
        nbytes: bytes that saving it costs; 0 if the step holds it anyway.
    """

    name: str
    nbytes: int


@dataclass(frozen=True)
class Plan:
    """How one graph is split and replayed; all of it is fixed when the graph is compiled.

    Attributes:
        graph: fingerprint of the joint graph that the plan belongs to.
        budget: limit on the peak in bytes, or None for no limit.
        predicted_peak: most bytes that the region holds at one moment of the step.
        baseline_peak: the same for the plan that recomputes nothing.
        floor: bytes below which no plan of this graph can go.
        recompute_seconds: predicted time of the recomputed ops.
        lower_bound_seconds: time below which no plan within the budget can recompute.
        step_seconds: predicted time of a step that recomputes nothing.
        recompute_flops: floating-point operations of the recomputed ops.
        saved: values that the forward hands to the backward, in graph order.
        forward: ops in the order in which the forward runs them.
        schedule: ops in the order in which the backward runs them, with repeats.
        recomputed: forward ops that the backward runs again, once for each further run.
        held: bytes that other graphs held for their backward when this one was planned; a budget
            for the step has been lowered by them.
        complete: False if a time limit stopped the search.
        detail: the problem that it solves and where its ops come from; not compared.
        timings: seconds that each stage of planning took; neither compared nor written to files.
    """

    graph: str
    budget: int | None
    predicted_peak: int
    baseline_peak: int
    floor: int
    recompute_seconds: float
    lower_bound_seconds: float
    step_seconds: float
    recompute_flops: int
    saved: tuple[SavedValue, ...]
    forward: tuple[str, ...]
    schedule: tuple[str, ...]
    recomputed: tuple[str, ...]
    held: int = 0
    complete: bool = True
    detail: Detail | None = field(default=None, compare=False, repr=False)
    timings: dict[str, float] = field(default_factory=dict, compare=False, repr=False)

    @property
    def saved_bytes(self) -> int:
        """Bytes that are live between forward and backward for the backward's sake."""
        return sum(v.nbytes for v in self.saved)

    @property
    def overhead(self) -> float:
        """Predicted recompute time as a share of the step's time."""
        return self._share(self.recompute_seconds)

    @property
    def gap(self) -> float:
        """How much of the step's time a better plan could save at most."""
        return self._share(max(0.0, self.recompute_seconds - self.lower_bound_seconds))

    def _share(self, seconds: float) -> float:
        return seconds / self.step_seconds if self.step_seconds else 0.0

    @cached_property
    def repeats(self) -> dict[str, int]:
        """How often each recomputed op runs again."""
        return dict(Counter(self.recomputed))

    def to_json(self) -> str:
        """The plan as JSON text, the same for the same plan; :meth:`from_json` reads it back."""
        bare = replace(self, detail=None, timings={})
        data = {"format": FORMAT, **asdict(bare)}
        del data["timings"]
        detail = None if self.detail is None else self.detail.to_data()
        # The plan for readers, its long detail on one line.
        text = json.dumps({**data, "detail": None}, indent=1)
        compact = json.dumps(detail, separators=(",", ":"))
        return text.removesuffix('"detail": null\n}') + f'"detail": {compact}\n}}'

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read what :meth:`to_json` wrote.

        Raises:
            ValueError: if the text is not a plan or comes from another format.
        """
        data: Any = json.loads(text)
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise ValueError(f"not a plan of format {FORMAT}; write it again with to_json()")
        names = {f.name for f in fields(cls)} - {"timings"}
        if set(data) != names:
            odd = ", ".join(sorted(set(data) ^ names))
            raise ValueError(f"not a plan: fields missing or unknown: {odd}")
        if data["detail"] is not None:
            data["detail"] = Detail.from_data(data["detail"])
        data["saved"] = tuple(SavedValue(**v) for v in data["saved"])
        for name in ("forward", "schedule", "recomputed"):
            data[name] = tuple(data[name])
        return cls(**data)

    def __str__(self) -> str:
        """The plan for a reader: prediction, bound, what is saved and recomputed."""
        limit = "no limit" if self.budget is None else format_bytes(self.budget)
        top = sorted(self.saved, key=lambda v: -v.nbytes)[:8]
        lines = [
            f"peak        {format_bytes(self.predicted_peak)} predicted, budget {limit}",
            f"baseline    {format_bytes(self.baseline_peak)} without recomputing",
            f"floor       {format_bytes(self.floor)}, no plan goes below",
            f"time        {self.overhead:+.1%} of a step of {self.step_seconds * 1e3:.1f} ms, "
            f"{self.recompute_flops / 1e9:.2f} GFLOP recomputed",
            f"bound       no plan within the budget recomputes for less than "
            f"{self._share(self.lower_bound_seconds):.1%} of a step",
            f"saved       {len(self.saved)} values, {format_bytes(self.saved_bytes)}",
            *(f"            {format_bytes(v.nbytes):>12}  {v.name}" for v in top if v.nbytes),
            f"recomputed  {len(self.recomputed)} runs of {len(self.repeats)} ops",
        ]
        if self.held:
            lines.append(f"step        other graphs hold {format_bytes(self.held)} meanwhile")
        if not self.complete:
            lines.append("the search was stopped by the time limit; a longer one may do better")
        return "\n".join(lines)


def summary(plan: Plan) -> str:
    """What was decided, in one line."""
    limit = "none" if plan.budget is None else format_bytes(plan.budget)
    return (
        f"peak {format_bytes(plan.predicted_peak)} of {format_bytes(plan.baseline_peak)} "
        f"(budget {limit}), {plan.overhead:+.1%} time "
        f"(at most {plan.gap:.1%} above the best), {len(plan.saved)} values saved, "
        f"{len(plan.recomputed)} runs recomputed, planned in {sum(plan.timings.values()):.2f} s"
    )
