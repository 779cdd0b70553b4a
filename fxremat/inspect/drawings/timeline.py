"""The memory of a step over time, as a chart."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any, Literal

import altair as alt

from fxremat.base.units import format_bytes
from fxremat.inspect.drawings.charts import PICKED, finished, rows_of, unit_of
from fxremat.inspect.drawings.levels import bands, baseline_levels, stretches
from fxremat.inspect.drawings.style import INK, MUTED
from fxremat.inspect.step import PlannedStep
from fxremat.plans.plan import Plan
from fxremat.problem.liveness import Holding, Interval

__all__ = ["timeline_chart"]

MOST = 1200  # ops and stretches of ops that a chart shows apart
# From the bottom; what is there longest lies lowest.
HOLDINGS = {
    Holding.OUTPUT: ("outputs", "#5b6570"),
    Holding.TANGENT: ("tangents", "#cc79a7"),
    Holding.GRADIENT: ("gradients", "#009e73"),
    Holding.SAVED: ("saved", "#0072b2"),
    Holding.RECOMPUTED: ("recomputed", "#e69f00"),
    Holding.TEMPORARY: ("temporaries", "#a5d3ee"),
}
WORKSPACE = ("workspace", "#c3c9d0")
MODULES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#b3a100", "#8a5a44")
OTHERS = ("others", "#8c959f")


def timeline_chart(
    plan: Plan, step: PlannedStep | None = None, *, by: Literal["kind", "module"] = "kind"
) -> alt.LayerChart:
    """What is live at each op of the step, with the baseline, the budget and the floor.

    The chart has the parameters ``axis``, "op" or "time", and ``cursor``, a place on that axis.

    Args:
        plan: the plan.
        step: what the plan runs, if that has been read off it already.
        by: whether bytes are stacked by why they are live, or by the module that makes them.
    """
    step = step or PlannedStep(plan)
    unit, scale = unit_of(max(plan.baseline_peak, plan.predicted_peak))
    groups, of = _by_kind() if by == "kind" else _by_module(step)
    rows = _rows(step, of, len(groups), scale)
    lines = [("floor", plan.floor, MUTED)]
    if plan.budget is not None:
        lines.append(("budget", plan.budget, PICKED))
    chart = alt.layer(
        _stack(rows, groups, unit),
        _placed()
        .transform_filter("isValid(datum.before)")
        .mark_line(interpolate="step-after", color=INK, strokeWidth=1.1, strokeDash=[5, 3])
        .encode(x=X, y="before:Q"),
        *(mark for line in lines for mark in _level(*line, scale)),
        *_marks(step, rows),
        alt.Chart(rows_of([{}]))
        .transform_calculate(x="cursor")
        .mark_rule(color=INK, opacity=alt.expr("cursor > 0 ? 1 : 0"))
        .encode(x=X),
        data=rows_of(rows),
    )
    return finished(chart, "Memory over one step, dashed without recomputing")


X = (
    alt.X("x:Q")
    .title("the step, from its first op to its last")
    .scale(nice=False)
    .axis(grid=False, labelExpr="axis == 'time' ? datum.label + ' ms' : datum.label")
)


def _placed(rows: list[dict[str, Any]] | None = None) -> alt.Chart:
    """A chart of rows that have a place on both axes, by op and by time; by default, of all."""
    x, x2 = (f"axis == 'time' ? datum.t{end} : datum.p{end}" for end in ("", "2"))
    data = alt.Undefined if rows is None else rows_of(rows)
    return alt.Chart(data).transform_calculate(x=x, x2=x2)


def _stack(rows: list[dict[str, Any]], groups: list[tuple[str, str]], unit: str) -> alt.Chart:
    """What is live, group upon group."""
    shown = [i for i in range(len(groups)) if any(row[str(i)] for row in rows)]
    names, colours = zip(*(groups[i] for i in shown), strict=True) if shown else ((), ())
    legend = alt.selection_point(name="legend", fields=["group"], bind="legend")
    zoom = alt.selection_interval(
        name="zoom", bind="scales", encodings=["x"], zoom="wheel![event.ctrlKey]"
    )
    colour = alt.Scale(domain=names, range=colours)
    key = alt.Legend(title=None, orient="bottom")
    told = {"op": "while", "half": "in the", "module": "module", "live": "live", "group": "of it"}
    made: alt.Chart = (
        _placed()
        .transform_fold([str(i) for i in shown], as_=["key", "size"])
        .transform_filter("datum.size > 0")
        .transform_calculate(
            group=f"{json.dumps([name for name, _ in groups])}[+datum.key]",
            text=f"format(datum.size, '.4~g') + ' {unit}'",
        )
        .transform_stack(["low", "high"], "size", ["p"], sort=[alt.SortField("key")])
        .mark_rect(strokeWidth=0.5, aria=False)
        .encode(
            x=X,
            x2="x2:Q",
            y=alt.Y("low:Q").title(f"live, {unit}"),
            y2="high:Q",
            color=alt.Color("group:N", scale=colour, legend=key),
            stroke=alt.Stroke("group:N", scale=colour, legend=key),  # closes the seams
            opacity=alt.when(legend).then(alt.value(1.0)).otherwise(alt.value(0.2)),
            tooltip=[
                alt.Tooltip(f"{field}:N", title=title)
                for field, title in (told | {"text": "bytes"}).items()
            ],
        )
        .add_params(
            alt.param(name="axis", value="op"), alt.param(name="cursor", value=0), legend, zoom
        )
    )
    return made


def _by_kind() -> tuple[list[tuple[str, str]], Callable[[Interval], int]]:
    """Names and colours of groups, and the group of a copy."""
    place = {holding: i for i, holding in enumerate(HOLDINGS)}
    return [*HOLDINGS.values(), WORKSPACE], lambda one: place[one.holding]


def _by_module(step: PlannedStep) -> tuple[list[tuple[str, str]], Callable[[Interval], int]]:
    """The same for modules; those of one kind, as layers.0.mlp and layers.1.mlp, are one group."""
    modules = [
        re.sub(r"(^|\.)\d+(?=\.|$)", r"\1*", step.context.origin(v.name).module) or "(no module)"
        for v in step.problem.values
    ]
    weight: Counter[str] = Counter()
    for one in step.occupancy.intervals:
        weight[modules[one.value]] += one.nbytes * (one.end - one.start + 1)
    top = [name for name, _ in weight.most_common(len(MODULES))]
    place = {name: i for i, name in enumerate(top)}
    groups = [*zip(top, MODULES, strict=False), OTHERS, WORKSPACE]
    return groups, lambda one: place.get(modules[one.value], len(top))


def _rows(
    step: PlannedStep, of: Callable[[Interval], int], groups: int, scale: float
) -> list[dict[str, Any]]:
    """A row for each stretch of ops, of the op in it with most bytes live; and one for the end.

    Fields are ``p`` and ``t``, op and milliseconds at which it begins, ``p2`` and ``t2``, at which
    it ends, bytes of each group by its number and ``before``, in units, and what tooltips say.
    """
    line, ops = step.occupancy, step.problem.ops
    times = [0.0, *accumulate(ops[op].seconds * 1e3 for op in line.ops)]
    shown = [float(f"{time:.6g}") for time in times]
    levels, before = bands(line, groups, of), dict(baseline_levels(step))
    rows: list[dict[str, Any]] = []
    last = None
    for begin, end in stretches([b - a for a, b in pairwise(times)], MOST):
        p = max(range(begin, end), key=line.levels.__getitem__)
        name = ops[line.ops[p]].name
        last = max((before[q] / scale for q in range(begin, end) if q in before), default=last)
        row = {
            "p": begin,
            "p2": end,
            "t": shown[begin],
            "t2": shown[end],
            "op": name,
            "module": step.context.origin(name).module,
            "half": "forward" if p < line.boundary else "backward",
            "live": format_bytes(line.levels[p]),
            "bytes": line.levels[p],
            "before": last,
        }
        rows.append(row | {str(i): n / scale for i, n in enumerate(levels[:, p].tolist())})
    end_row: dict[str, Any] = dict.fromkeys(map(str, range(groups)), 0)
    return [*rows, {**end_row, "p": len(line.ops), "t": shown[-1], "before": last, "bytes": 0}]


def _level(name: str, nbytes: int, colour: str, scale: float) -> list[alt.Chart]:
    """A line across the chart, with its name."""
    base = alt.Chart(rows_of([{"y": nbytes / scale, "text": f"{name} {format_bytes(nbytes)}"}]))
    text = base.mark_text(align="left", baseline="bottom", dx=3, dy=-2, color=colour)
    return [
        base.mark_rule(color=colour, strokeDash=[7, 4]).encode(y="y:Q"),
        text.encode(x=alt.value(0), y="y:Q", text="text:N"),
    ]


def _marks(step: PlannedStep, rows: list[dict[str, Any]]) -> list[alt.Chart]:
    """Where the peak is, and where the forward ends."""
    line = step.occupancy
    highest = max(rows, key=lambda row: row["bytes"])
    top = sum(n for name, n in highest.items() if name.isdigit())
    peak = {**highest, "y": top, "text": f"peak {format_bytes(step.plan.predicted_peak)}"}
    ends = [row for row in rows if row["p"] <= line.boundary][-1:]
    found = []
    if highest["bytes"]:
        place = (
            _placed([peak]).encode(x=X, y="y:Q").transform_calculate(x="(datum.x + datum.x2) / 2")
        )
        found += [
            place.mark_point(shape="triangle-down", filled=True, color=INK, size=60, yOffset=-6),
            place.mark_text(baseline="bottom", dy=-12, color=INK).encode(text="text:N"),
        ]
    if 0 < line.boundary < len(line.ops):
        rule = _placed(ends)
        found.append(rule.mark_rule(color=MUTED, strokeDash=[2, 2]).encode(x=X))
        looks: dict[str, Any] = {"dy": 8, "color": MUTED}
        for word in (
            rule.mark_text(text="forward", align="right", dx=-6, **looks),
            rule.mark_text(text="backward", align="left", dx=6, **looks),
        ):
            found.append(word.encode(x=X, y=alt.value(0)))
    return found
