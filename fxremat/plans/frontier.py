"""The frontier of a step: its trade-off between peak and time, as plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from fxremat.base.codec import decode, encode
from fxremat.plans.notebook import table
from fxremat.plans.parts import Parts, upgraded_context, upgraded_parts
from fxremat.plans.plan import Plan
from fxremat.plans.words import words
from fxremat.problem.context import Context

__all__ = ["Frontier", "knee"]

FORMAT = 2


@dataclass(frozen=True)
class _File:
    frontier: Annotated[tuple[Parts, ...], msgspec.Meta(min_length=1)]
    strategies: dict[str, Parts]
    context: Context


def _upgraded(data: dict[str, Any]) -> dict[str, Any]:
    """A frontier of format 1."""
    return {
        "frontier": [upgraded_parts(p) for p in data["frontier"]],
        "strategies": {name: upgraded_parts(p) for name, p in data["strategies"].items()},
        "context": upgraded_context(data["detail"]),
    }


@dataclass(frozen=True)
class Frontier(Sequence[Plan]):
    """Plans of one graph by falling peak and rising time; none is both larger and slower.

    Attributes:
        plans: the plans, from the one that recomputes nothing to the one with the least peak.
        strategies: plans of what people do by hand, by name, for comparison.
    """

    plans: tuple[Plan, ...]
    strategies: dict[str, Plan] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.plans)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self.plans[index]

    def __iter__(self) -> Iterator[Plan]:
        return iter(self.plans)

    @property
    def knee(self) -> Plan:
        """The plan at the bend of the curve, see :func:`knee`."""
        points = [(p.predicted_peak, p.recompute_seconds) for p in self.plans]
        return self.plans[knee(points, self.plans[0].step_seconds)]

    def within(self, budget: int) -> Plan | None:
        """The fastest plan within a number of bytes, or None if there is none."""
        return next((p for p in self.plans if p.predicted_peak <= budget), None)

    def to_json(self) -> str:
        """The frontier as JSON text; :meth:`from_json` reads it back."""
        return encode(
            {
                "format": FORMAT,
                "frontier": [p.parts for p in self.plans],
                "strategies": {name: p.parts for name, p in self.strategies.items()},
                "context": self.plans[0].context,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Frontier:
        """Read what :meth:`to_json` wrote.

        Raises:
            ValueError: if the text is not a frontier or comes from another format.
        """
        file = decode(text, _File, "a frontier", {1: _upgraded, FORMAT: dict})
        strategies = {name: Plan.of(p, file.context) for name, p in file.strategies.items()}
        return cls(tuple(Plan.of(p, file.context) for p in file.frontier), strategies)

    def __str__(self) -> str:
        """A table, one plan a line."""
        lines = [f"{'peak':>12}  {'of baseline':>11}  {'time':>7}  {'saved':>12}  recomputed runs"]
        for peak, share, time, saved, runs, mark in self._rows():
            shown = f"{peak:>12}  {share:>11}  {time:>7}  {saved:>12}  {runs:>6}"
            lines.append(f"{shown}  {mark}".rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The frontier in a notebook: a row for each plan."""
        return table(("peak", "of baseline", "time", "saved", "recomputed runs", ""), self._rows())

    def _rows(self) -> list[tuple[str, str, str, str, str, str]]:
        bend = self.knee
        return [
            (
                said.peak,
                f"{plan.predicted_peak / max(1, plan.baseline_peak):.1%}",
                said.time,
                said.saved_bytes,
                str(len(plan.recomputed)),
                "<- knee" if plan is bend else "",
            )
            for plan in self.plans
            for said in (words(plan),)
        ]


def knee(points: Sequence[tuple[float, float]], step_seconds: float) -> int:
    """Index of the point farthest below the line between the ends of a falling curve.

    Both axes are scaled to the curve's extent (Satopaa et al. 2011, "Finding a kneedle in a
    haystack"). The curve is taken to end where a further forward pass would be paid for, a third of
    a step: beyond, values are recomputed again and again, and the time has no bound to scale by.

    Args:
        points: at least one pair of a peak and a recompute time, by falling peak.
        step_seconds: time of a step that recomputes nothing.

    >>> knee([(10, 0.0), (4, 0.1), (2, 0.9), (1, 7.0)], step_seconds=3.0)
    1
    """
    near = [p for p in points if p[1] <= step_seconds / 3] or [points[0]]
    (x0, y0), (x1, y1) = near[0], near[-1]
    width, height = abs(x1 - x0) or 1.0, abs(y1 - y0) or 1.0
    gains = [abs(x - x0) / width - abs(y - y0) / height for x, y in near]
    return max(range(len(near)), key=lambda i: gains[i])
