"""What is said of a plan in a line or two: in logs, drawings, tables and reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fxremat.base.units import count, format_bytes

if TYPE_CHECKING:
    from fxremat.plans.plan import Plan

__all__ = ["Words", "headline", "summary", "words"]


@dataclass(frozen=True, slots=True)
class Words:
    """The figures of a plan as texts.

    Attributes:
        peak: the predicted peak, such as ``3.0 MiB``.
        baseline: the peak without recomputing.
        floor: the peak that no plan goes below.
        budget: such as ``budget 4.0 MiB``, or ``no limit``.
        time: the time for recomputing, such as ``+3.1%`` of a step.
        gap: how much of a step a better plan could save at most.
        saved: such as ``12 values``.
        saved_bytes: their bytes.
        recomputed: such as ``5 runs of 4 ops``.
    """

    peak: str
    baseline: str
    floor: str
    budget: str
    time: str
    gap: str
    saved: str
    saved_bytes: str
    recomputed: str


def words(plan: Plan) -> Words:
    """The figures of a plan as texts."""
    return Words(
        peak=format_bytes(plan.predicted_peak),
        baseline=format_bytes(plan.baseline_peak),
        floor=format_bytes(plan.floor),
        budget="no limit" if plan.budget is None else f"budget {format_bytes(plan.budget)}",
        time=f"{plan.overhead:+.1%}",
        gap=f"{plan.gap:.1%}",
        saved=count(len(plan.saved), "value"),
        saved_bytes=format_bytes(plan.saved_bytes),
        recomputed=f"{count(len(plan.recomputed), 'run')} of {count(len(plan.repeats), 'op')}",
    )


def summary(plan: Plan, seconds: float) -> str:
    """What was decided, in one line.

    Args:
        plan: the plan.
        seconds: that planning took.
    """
    return f"{'; '.join(headline(plan))}; planned in {seconds:.2f} s"


def headline(plan: Plan) -> tuple[str, str]:
    """A plan in two lines: its peak and its time, and what is saved and recomputed."""
    said = words(plan)
    return (
        f"peak {said.peak} of {said.baseline} ({said.budget}), {said.time} time "
        f"(at most {said.gap} above the best)",
        f"{said.saved} saved ({said.saved_bytes}), {said.recomputed} recomputed",
    )
