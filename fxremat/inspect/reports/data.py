"""What a report shows, as plain data: tables of columns, so that large plans make small files."""

from __future__ import annotations

import math
from typing import Any

from fxremat.base.budget import format_bytes
from fxremat.base.units import format_seconds
from fxremat.inspect.decisions import Choice
from fxremat.inspect.explain import Explainer
from fxremat.plans.frontier import Frontier
from fxremat.plans.plan import Plan
from fxremat.problem.liveness import Holding, Occupancy
from fxremat.problem.replay import copies
from fxremat.problem.types import Phase

__all__ = ["report_data"]

HOLDINGS = tuple(Holding)


class _Texts:
    """Texts that occur often, kept once each."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.index.setdefault(text, len(self.index))


def report_data(
    explainer: Explainer, frontier: Frontier | None = None, title: str = "", *, worth: bool = True
) -> dict[str, Any]:
    """All that the page needs; for the arguments see :func:`fxremat.inspect.reports.to_html`."""
    plan = explainer.plan
    texts = _Texts()
    line = explainer.occupancy
    data = {
        "title": title or "fxremat plan",
        "sentence": _sentence(plan),
        "cards": _cards(plan, explainer),
        "notes": _notes(plan, explainer, worth),
        "budget": plan.budget,
        "floor": plan.floor,
        "ops": _ops(explainer, texts),
        "plan": _line(line),
        "before": _before(explainer.before),
        "holdings": [h.value for h in HOLDINGS],
        "intervals": _intervals(line),
        "values": _values(explainer, texts),
        "cut": _cut(explainer),
        "peak": _peak(explainer),
        "frontier": None if frontier is None else _frontier(plan, frontier),
    }
    return {**data, "texts": list(texts.index)}


def _sentence(plan: Plan) -> str:
    share = 1 - plan.predicted_peak / max(1, plan.baseline_peak)
    if not plan.recomputed:
        return f"Keeps {format_bytes(plan.saved_bytes)} and recomputes nothing."
    return (
        f"Keeps {format_bytes(plan.saved_bytes)} for the backward and runs "
        f"{len(plan.recomputed)} ops again: {share:.0%} less memory for {plan.overhead:+.1%} time."
    )


def _cards(plan: Plan, explainer: Explainer) -> list[list[str]]:
    """Label, figure and note of each figure in the headline."""
    limit = "no limit" if plan.budget is None else format_bytes(plan.budget)
    cards = [
        ["Predicted peak", format_bytes(plan.predicted_peak), f"budget {limit}"],
        ["Without recomputing", format_bytes(plan.baseline_peak), "the baseline"],
        ["Floor", format_bytes(plan.floor), "no plan goes below"],
        [
            "Extra time",
            f"{plan.overhead:+.1%}",
            f"of {format_seconds(plan.step_seconds)}; at most {plan.gap:.2%} above the best",
        ],
        [
            "Saved",
            format_bytes(plan.saved_bytes),
            f"{len(plan.saved)} values; {len(plan.recomputed)} runs recomputed",
        ],
    ]
    held = explainer.context.resident
    if held is not None:
        total = held.total(plan.predicted_peak)
        cards.append(["Whole step", format_bytes(total), str(held)])
    return cards


def _notes(plan: Plan, explainer: Explainer, worth: bool) -> list[str]:
    how = {"eager": "run op by op", "inductor": "compiled by Inductor"}
    inner = how.get(explainer.context.inner, "compiled by a callable")
    device = explainer.context.device or "an unnamed device"
    notes = [f"Costs of {device}; {inner}; graph {plan.graph}."]
    top = max(explainer.occupancy.levels, default=0)
    if top != plan.predicted_peak:
        notes.append(
            f"The chart counts single ops and peaks at {format_bytes(top)}; the compiled code, in "
            f"which ops are fused, peaks at {format_bytes(plan.predicted_peak)}."
        )
    if worth:
        notes.append(f"At the peak, {explainer.worth()}.")
    if not plan.complete:
        notes.append("A time limit stopped the search; a longer one may do better.")
    return notes


def _ops(explainer: Explainer, texts: _Texts) -> dict[str, list[Any]]:
    problem, context = explainer.problem, explainer.context
    origins = [context.origin(op.name) for op in problem.ops]
    return {
        "name": [op.name for op in problem.ops],
        "kind": [texts(o.op) for o in origins],
        "module": [texts(o.module) for o in origins],
        "seconds": [_short(op.seconds) for op in problem.ops],
        "late": [int(op.phase is Phase.BACKWARD) for op in problem.ops],
    }


def _line(line: Occupancy) -> dict[str, Any]:
    """One replay: ops, levels and workspaces by position."""
    return {
        "ops": line.ops,
        "levels": line.levels,
        "workspace": line.workspace,
        "boundary": line.boundary,
    }


def _before(line: Occupancy | None) -> dict[str, Any] | None:
    """The plan that recomputes nothing, where the rules allow one."""
    if line is None:
        return None
    return {"ops": line.ops, "levels": line.levels, "boundary": line.boundary}


def _intervals(line: Occupancy) -> dict[str, list[int]]:
    place = {holding: index for index, holding in enumerate(HOLDINGS)}
    return {
        "value": [i.value for i in line.intervals],
        "start": [i.start for i in line.intervals],
        "end": [i.end for i in line.intervals],
        "holding": [place[i.holding] for i in line.intervals],
    }


def _values(explainer: Explainer, texts: _Texts) -> dict[str, list[Any]]:
    verdicts = list(explainer.verdicts.values())
    origins = [explainer.context.origin(v.name) for v in verdicts]
    return {
        "name": [v.name for v in verdicts],
        "bytes": [v.nbytes for v in verdicts],
        "choice": [texts(v.choice.value) for v in verdicts],
        "runs": [v.runs for v in verdicts],
        "seconds": [_short(v.rebuild_seconds) for v in verdicts],
        "reason": [texts(v.reason) for v in verdicts],
        "op": [texts(o.op) for o in origins],
        "shape": [texts(o.shape) for o in origins],
        "module": [texts(o.module) for o in origins],
        "source": [texts(o.source) for o in origins],
        "code": [texts(o.code) for o in origins],
    }


def _cut(explainer: Explainer) -> list[list[Any]]:
    """Each saved value, the op that makes it, and the ops that read what is saved."""
    problem = explainer.problem
    found: list[list[Any]] = []
    for copy in copies(problem, explainer.schedule):
        verdict = explainer.verdicts[problem.values[copy.value].name]
        if copy.start < 0 and verdict.choice is Choice.SAVED:
            readers = list(dict.fromkeys(explainer.schedule[p] for p in copy.uses))
            found.append([copy.value, problem.producer[copy.value], readers])
    return found


def _peak(explainer: Explainer) -> list[list[Any]]:
    """Value and holding of the largest that are live where most is."""
    return [[i.value, i.holding.value] for i in explainer.at_peak()]


def _frontier(plan: Plan, frontier: Frontier) -> dict[str, Any]:
    bend = frontier.knee
    return {
        "points": [_point(p) for p in frontier],
        "knee": next(i for i, p in enumerate(frontier) if p is bend),
        "chosen": _point(plan),
        "strategies": [[name, *_point(p)] for name, p in frontier.strategies.items()],
    }


def _point(plan: Plan) -> list[float]:
    return [plan.predicted_peak, plan.overhead, plan.saved_bytes, len(plan.recomputed)]


def _short(seconds: float) -> float | None:
    """Four digits are enough to show; JSON knows no infinity."""
    return float(f"{seconds:.4g}") if math.isfinite(seconds) else None
