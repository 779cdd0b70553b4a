"""A report's page: what it shows, as plain data, charts and drawings, in one template."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import vl_convert
from markupsafe import Markup

from fxremat.base.units import format_bytes, format_seconds
from fxremat.inspect.drawings.folding import folded, prefixes
from fxremat.inspect.drawings.frontier import frontier_chart
from fxremat.inspect.drawings.graphs import joint_graph
from fxremat.inspect.drawings.svg import to_svg
from fxremat.inspect.drawings.timeline import timeline_chart
from fxremat.inspect.explain import Explainer
from fxremat.inspect.step import Choice
from fxremat.inspect.templates import fill
from fxremat.plans.frontier import Frontier
from fxremat.plans.plan import Plan
from fxremat.plans.words import words
from fxremat.problem.liveness import Holding

__all__ = ["HOLDINGS", "page", "report_data"]

HOLDINGS = tuple(Holding)
FEW = 24  # modules of an overview


def page(explainer: Explainer, frontier: Frontier | None, title: str, *, worth: bool = True) -> str:
    """The page as text; for the arguments see :func:`fxremat.inspect.reports.to_html`."""
    plan = explainer.plan
    charts = {
        f"timeline_{by}": timeline_chart(plan, explainer, by=by).to_dict()
        for by in ("kind", "module")
    }
    if frontier is not None:
        charts["frontier"] = frontier_chart(frontier, plan).to_dict()
    return fill(
        "page.html",
        title=title,
        sentence=_sentence(plan),
        cards=_cards(explainer),
        notes=_notes(explainer, worth),
        peak=_peak(explainer),
        modules=_modules(explainer),
        frontier=frontier,
        data=report_data(explainer),
        charts=charts,
        vega=_vega(),
    )


@cache
def _vega() -> Markup:
    """What draws the charts in a browser, as one script."""
    return Markup(vl_convert.javascript_bundle(None))  # type: ignore[arg-type]


def _sentence(plan: Plan) -> str:
    said, share = words(plan), 1 - plan.predicted_peak / max(1, plan.baseline_peak)
    if not plan.recomputed:
        return f"Keeps {said.saved_bytes} and recomputes nothing."
    return (
        f"Keeps {said.saved_bytes} for the backward and repeats {said.recomputed}: "
        f"{share:.0%} less memory for {said.time} time."
    )


def _cards(explainer: Explainer) -> list[tuple[str, str, str]]:
    """Label, figure and note of each figure in the headline."""
    plan, said, held = explainer.plan, words(explainer.plan), explainer.context.resident
    step = format_seconds(plan.step_seconds)
    cards = [
        ("Predicted peak", said.peak, said.budget),
        ("Without recomputing", said.baseline, "the baseline"),
        ("Floor", said.floor, "no plan goes below"),
        ("Extra time", said.time, f"of {step}; at most {said.gap} above the best"),
        ("Saved", said.saved_bytes, f"{said.saved}; {said.recomputed} recomputed"),
    ]
    if held is not None:
        cards.append(("Whole step", format_bytes(held.total(plan.predicted_peak)), str(held)))
    return cards


def _notes(explainer: Explainer, worth: bool) -> list[str]:
    plan, context = explainer.plan, explainer.context
    how = {"eager": "run op by op", "inductor": "compiled by Inductor"}
    inner = how.get(context.inner, "compiled by a callable")
    notes = [f"Costs of {context.device or 'an unnamed device'}; {inner}; graph {plan.graph}."]
    if explainer.limit != plan.predicted_peak:
        notes.append(
            f"The chart counts single ops and peaks at {format_bytes(explainer.limit)}; the "
            f"compiled code, in which ops are fused, peaks at {format_bytes(plan.predicted_peak)}."
        )
    if worth:
        notes.append(f"At the peak, {explainer.worth()}.")
    if not plan.complete:
        notes.append("A time limit stopped the search; a longer one may do better.")
    return notes


def _peak(explainer: Explainer) -> list[dict[str, str]]:
    """The largest that are live where most is."""
    found = []
    for one in explainer.at_peak():
        name = explainer.problem.values[one.value].name
        decision = explainer.decisions[name]
        decided = decision.choice in (Choice.SAVED, Choice.RECOMPUTED)
        found.append(
            {
                "bytes": format_bytes(one.nbytes),
                "name": name,
                "holding": one.holding.value,
                "module": explainer.context.origin(name).module or "-",
                "again": format_seconds(decision.rebuild_seconds) if decided else "-",
                "why": decision.reason,
            }
        )
    return found


def _modules(explainer: Explainer) -> dict[str, Markup]:
    """The joint graph by module, and the inside of each module, as drawings."""
    joint = joint_graph(explainer.plan, explainer)
    paths = [path for _, path in joint.nodes(data="module") if path]
    parents: dict[str, None] = {}  # a set in order
    for path in paths:
        parents |= dict.fromkeys(prefixes(path))
    opened, level = {""}, [p for p in parents if "." not in p]
    rows = len(level)
    while level:  # opened level by level while they stay few
        below = [p for p in parents if p.rpartition(".")[0] in level]
        if not below or rows + len(below) > FEW:
            break
        opened |= {p for p in level if any(b.startswith(p + ".") for b in below)}
        level, rows = below, rows + len(below)
    drawn = {"": Markup(to_svg(folded(joint, opened), bare=True))}
    for path in parents:
        drawn[path] = Markup(to_svg(folded(joint, {"", *prefixes(path)}, path), bare=True))
    return drawn


class _Texts:
    """Texts that occur often, kept once each."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.index.setdefault(text, len(self.index))


def report_data(explainer: Explainer) -> dict[str, Any]:
    """What the script of the page needs, as columns, so that large plans make small files."""
    problem, context, line = explainer.problem, explainer.context, explainer.occupancy
    texts = _Texts()
    place = {holding: index for index, holding in enumerate(HOLDINGS)}
    origins = {name: context.origin(name) for name in (*context.op_index, *context.value_index)}
    decisions = list(explainer.decisions.values())
    made = [origins[d.name] for d in decisions]
    data = {
        "ops": {
            "name": [op.name for op in problem.ops],
            "module": [texts(origins[op.name].module) for op in problem.ops],
            "seconds": [_short(op.seconds) for op in problem.ops],
        },
        "plan": {
            "ops": line.ops,
            "levels": line.levels,
            "workspace": line.workspace,
            "boundary": line.boundary,
        },
        "holdings": [h.value for h in HOLDINGS],
        "intervals": {
            "value": [i.value for i in line.intervals],
            "start": [i.start for i in line.intervals],
            "end": [i.end for i in line.intervals],
            "holding": [place[i.holding] for i in line.intervals],
        },
        "values": {
            "name": [d.name for d in decisions],
            "bytes": [d.nbytes for d in decisions],
            "choice": [texts(d.choice.value) for d in decisions],
            "runs": [d.runs for d in decisions],
            "seconds": [_short(d.rebuild_seconds) for d in decisions],
            "reason": [texts(d.reason) for d in decisions],
            **{
                field: [texts(getattr(origin, field)) for origin in made]
                for field in ("op", "shape", "module", "source", "code")
            },
        },
    }
    return {**data, "texts": list(texts.index)}


def _short(seconds: float) -> float | None:
    """Four digits are enough to show; JSON knows no infinity."""
    return float(f"{seconds:.4g}") if math.isfinite(seconds) else None
