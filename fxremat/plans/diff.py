"""What two plans of one graph do differently."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from fxremat.base.units import format_bytes
from fxremat.plans.parts import SavedValue
from fxremat.plans.plan import Plan

__all__ = ["Diff", "diff"]

SHOWN = 12


@dataclass(frozen=True)
class Diff:
    """What a second plan does otherwise than a first.

    Attributes:
        same_graph: whether both are for one graph; names tell little otherwise.
        peak: predicted peaks in bytes.
        seconds: times of recomputing, in seconds.
        step_seconds: time of the first plan's step when nothing is recomputed, in seconds.
        saved: values that the second saves and the first does not.
        dropped: values that the first saves and the second does not.
        more: ops that the second recomputes more often, and by how many runs.
        less: ops that it recomputes less often.
    """

    same_graph: bool
    peak: tuple[int, int]
    seconds: tuple[float, float]
    step_seconds: float
    saved: tuple[SavedValue, ...]
    dropped: tuple[SavedValue, ...]
    more: dict[str, int]
    less: dict[str, int]

    @property
    def is_empty(self) -> bool:
        """Whether both plans save and recompute the same."""
        return not (self.saved or self.dropped or self.more or self.less)

    def to_data(self) -> dict[str, Any]:
        """The difference as what JSON can hold."""
        return {
            "same_graph": self.same_graph,
            "peak": list(self.peak),
            "recompute_seconds": list(self.seconds),
            "saved": {v.name: v.nbytes for v in self.saved},
            "dropped": {v.name: v.nbytes for v in self.dropped},
            "more": self.more,
            "less": self.less,
        }

    def __str__(self) -> str:
        """The difference for a reader."""
        step = self.step_seconds or 1.0
        first, second = self.peak
        lines = [
            f"peak        {format_bytes(first)} -> {format_bytes(second)} "
            f"({format_bytes(second - first)})",
            f"time        {self.seconds[0] / step:+.1%} -> {self.seconds[1] / step:+.1%} of a step",
        ]
        if not self.same_graph:
            lines.insert(0, "the plans are for two graphs, so equal names may mean other values")
        lines += _values("saved", "+", self.saved) + _values("not saved", "-", self.dropped)
        lines += _runs("recomputed", "+", self.more) + _runs("no longer", "-", self.less)
        if self.is_empty:
            lines.append("both save and recompute the same")
        return "\n".join(lines)


def diff(first: Plan, second: Plan) -> Diff:
    """What the second plan saves and recomputes otherwise than the first."""
    one, two = ({v.name for v in p.saved} for p in (first, second))
    before, after = Counter(first.recomputed), Counter(second.recomputed)
    return Diff(
        same_graph=first.graph == second.graph,
        peak=(first.predicted_peak, second.predicted_peak),
        seconds=(first.recompute_seconds, second.recompute_seconds),
        step_seconds=first.step_seconds,
        saved=tuple(v for v in second.saved if v.name not in one),
        dropped=tuple(v for v in first.saved if v.name not in two),
        more=dict(after - before),
        less=dict(before - after),
    )


def _values(title: str, sign: str, values: tuple[SavedValue, ...]) -> list[str]:
    if not values:
        return []
    total = format_bytes(sum(v.nbytes for v in values))
    top = sorted(values, key=lambda v: (-v.nbytes, v.name))
    rows = [f"  {sign} {format_bytes(v.nbytes):>12}  {v.name}" for v in top[:SHOWN]]
    return [f"{title:<12}{len(values)} values, {total}", *rows, *_rest(len(values))]


def _runs(title: str, sign: str, runs: dict[str, int]) -> list[str]:
    if not runs:
        return []
    rows = [f"  {sign} {n:>3}x  {name}" for name, n in list(runs.items())[:SHOWN]]
    return [f"{title:<12}{sum(runs.values())} runs of {len(runs)} ops", *rows, *_rest(len(runs))]


def _rest(count: int) -> list[str]:
    return [f"    {count - SHOWN} more"] if count > SHOWN else []
