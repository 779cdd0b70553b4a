"""Charts, as specifications of Vega-Lite: the memory of a step over time, and the frontier.

The same chart is drawn to a file and, with what answers the mouse, in the report.
"""

from __future__ import annotations

import io
import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import accumulate, pairwise
from os import PathLike
from pathlib import Path
from typing import Any, Literal, cast

import altair as alt

from fxremat.base.budget import format_bytes
from fxremat.base.errors import OptionError
from fxremat.base.files import write_text, writing
from fxremat.inspect.drawings.levels import bands, baseline_levels, stretches
from fxremat.inspect.drawings.style import BACKGROUND, INK, MUTED
from fxremat.inspect.step import PlannedStep
from fxremat.plans.frontier import Frontier
from fxremat.plans.plan import Plan
from fxremat.plans.words import words
from fxremat.problem.liveness import Holding, Interval

__all__ = ["SUFFIXES", "frontier_chart", "save_chart", "timeline_chart"]

SUFFIXES = (".svg", ".png")
MOST = 1200  # ops and stretches of ops that a chart shows apart
WIDTH, HEIGHT = 760, 360
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
STRATEGY, CURVE, KNEE, PICKED = "#c45500", "#0072b2", "#009e73", "#c4006a"
IMPOSSIBLE = "#e8eaed"


def save_chart(chart: alt.LayerChart, path: str | PathLike[str]) -> None:
    """Write a chart to a file; its suffix, ``.svg`` or ``.png``, says what it is.

    Raises:
        OptionError: if the suffix is another one, or the file cannot be written.
    """
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise OptionError(f"{target}: a chart is an .svg or a .png file; name one of these")
    if target.suffix.lower() == ".svg":
        text = io.StringIO()
        chart.save(text, format="svg")
        # Numbers of clips go on in a process; here each file has its own, so it is always the same.
        ids: dict[str, int] = {}
        number = lambda m: f"{m[1]}clip{ids.setdefault(m[2], len(ids))}"  # noqa: E731
        write_text(target, re.sub(r'(id="|url\(#)clip(\d+)', number, text.getvalue()))
    else:
        with writing(target):
            chart.save(str(target), format="png", scale_factor=2.0)


# The timeline.


def timeline_chart(
    plan: Plan, step: PlannedStep | None = None, *, by: Literal["kind", "module"] = "kind"
) -> alt.LayerChart:
    """What is live at each op of the step, with the baseline, the budget and the floor.

    The chart has the parameters ``axis``, "op" or "time", and ``cursor``, a place on that axis.

    Args:
        plan: a plan with its context.
        step: what the plan runs, if that has been read off it already.
        by: whether bytes are stacked by why they are live, or by the module that makes them.

    Raises:
        OptionError: if the plan has no context.
    """
    step = step or PlannedStep(plan)
    unit, scale = _unit(max(plan.baseline_peak, plan.predicted_peak))
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
        alt.Chart(_data([{}]))
        .transform_calculate(x="cursor")
        .mark_rule(color=INK, opacity=alt.expr("cursor > 0 ? 1 : 0"))
        .encode(x=X),
        data=_data(rows),
    )
    return _finished(chart, "Memory over one step, dashed without recomputing")


X = (
    alt.X("x:Q")
    .title("the step, from its first op to its last")
    .scale(nice=False)
    .axis(grid=False, labelExpr="axis == 'time' ? datum.label + ' ms' : datum.label")
)


def _placed(rows: list[dict[str, Any]] | None = None) -> alt.Chart:
    """A chart of rows that have a place on both axes, by op and by time; by default, of all."""
    x, x2 = (f"axis == 'time' ? datum.t{end} : datum.p{end}" for end in ("", "2"))
    data = alt.Undefined if rows is None else _data(rows)
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
    base = alt.Chart(_data([{"y": nbytes / scale, "text": f"{name} {format_bytes(nbytes)}"}]))
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


# The frontier.


def frontier_chart(frontier: Frontier, chosen: Plan | None = None) -> alt.LayerChart:
    """Peak against time: the plans, their knee, and what people do by hand.

    What costs far more than the curve stands at the upper edge, with its figure.

    Args:
        frontier: the plans.
        chosen: a plan to be marked.
    """
    unit, scale = _unit(frontier.plans[0].baseline_peak)
    known = [*frontier, *([] if chosen is None else [chosen])]
    top = 112 * max(0.02, min(1.0, max(p.overhead for p in known)))  # per cent
    looks = {"fxremat": (CURVE, "circle", 30), "by hand": (STRATEGY, "square", 60)}
    marks = [("", plan, "fxremat") for plan in frontier]
    marks += [(name, plan, "by hand") for name, plan in _together(frontier.strategies)]
    special = [("knee", frontier.knee, KNEE, "diamond")] if len(frontier) > 2 else []
    special += [] if chosen is None else [("this plan", chosen, PICKED, "triangle-up")]
    for name, plan, colour, shape in special:
        what = f"{name}: {words(plan).peak}, {words(plan).time}"
        looks[what] = (colour, shape, 130)
        marks.append(("", plan, what))
    rows = [_mark(*mark, scale, top) for mark in marks]
    right = 1.04 * max(row["peak"] for row in rows)
    curve = [row for row in rows if row["what"] == "fxremat"]
    x = alt.X("peak:Q").title(f"peak of the step, {unit}").scale(domain=[0, right], nice=False)
    y = alt.Y("time:Q").title("time for recomputing, % of a step")
    y = y.scale(domain=[-0.02 * top, 1.03 * top], nice=False)
    domain = [what for what in looks if any(row["what"] == what for row in rows)]
    colours, shapes, sizes = zip(*(looks[what] for what in domain), strict=True)
    legend = alt.Legend(title=None, orient="bottom", columns=2, labelLimit=400)
    tooltip = [f"{name}:N" for name in ("what", "label", "predicted", "extra", "saved", "again")]
    chart = alt.layer(
        *_impossible(frontier, scale, x, y),
        alt.Chart(_data([{**curve[0], "peak": right}, *curve]))
        .mark_line(interpolate="step-after", color=CURVE, strokeWidth=1.5, clip=True)
        .encode(x=x, y=y),
        alt.Chart(_data(rows))
        .mark_point(filled=True, opacity=1)
        .encode(
            x=x,
            y=y,
            color=alt.Color("what:N", legend=legend).scale(domain=domain, range=colours),
            shape=alt.Shape("what:N", legend=legend).scale(domain=domain, range=shapes),
            size=alt.Size("what:O", legend=legend).scale(domain=domain, range=sizes),
            tooltip=tooltip,
        ),
        alt.Chart(_data(_labels(rows, right, top)))
        .mark_text(align="left", baseline="middle", color=STRATEGY)
        .encode(x=x, y=y, text="label:N"),
    )
    return _finished(chart, "Memory against time")


def _together(strategies: Mapping[str, Plan]) -> list[tuple[str, Plan]]:
    """What people do by hand; those at the same place share a label."""
    spots: dict[tuple[int, float], list[str]] = {}
    for name, plan in strategies.items():
        spots.setdefault((plan.predicted_peak, plan.overhead), []).append(name)
    return [(", ".join(names), strategies[names[0]]) for names in spots.values()]


def _mark(label: str, plan: Plan, what: str, scale: float, top: float) -> dict[str, Any]:
    """A point of the chart, with what its tooltip says."""
    said, time = words(plan), 100 * plan.overhead
    return {
        "peak": plan.predicted_peak / scale,
        "time": min(time, top),
        "what": what,
        "label": f"{label} ({said.time})" if time > top else label,
        "bytes": plan.predicted_peak,
        "predicted": said.peak,
        "extra": said.time,
        "saved": said.saved_bytes,
        "again": said.recomputed,
    }


def _labels(rows: list[dict[str, Any]], right: float, top: float) -> list[dict[str, Any]]:
    """Labels beside their points, moved down until none covers another one."""
    found: list[dict[str, Any]] = []
    letter, line = 6.5 * right / WIDTH, 14 * top / HEIGHT
    for row in sorted((row for row in rows if row["label"]), key=lambda row: -row["time"]):
        wide = letter * len(row["label"])
        x = min(row["peak"] + 10 * right / WIDTH, right - wide)
        y = min(row["time"] + line / 2, top - line)
        near = [one for one in found if one["peak"] < x + wide and x < one["end"]]
        while any(abs(one["time"] - y) < line for one in near):
            y -= line / 2
        found.append({"label": row["label"], "peak": x, "time": y, "end": x + wide})
    return found


def _impossible(frontier: Frontier, scale: float, x: alt.X, y: alt.Y) -> list[Any]:
    """Where no plan can be: left of the bound on the peak, and below the bound on time."""
    bounds = [(p.predicted_peak / scale, p.lower_bound_seconds, p.step_seconds) for p in frontier]
    left = frontier.plans[0].floor / scale
    boxes = [{"peak": 0.0, "end": left, "all": True, "time": 0.0, "high": 0.0}]
    for peak, seconds, step in sorted(bounds):
        # A bound holds for all lower peaks too, so each reaches to the left as far as the next one.
        high = 100 * seconds / step if step else 0.0
        boxes.append({"peak": left, "end": peak, "all": False, "time": 0.0, "high": high})
        left = max(left, peak)
    base = alt.Chart(_data(boxes))
    drawn = base.mark_rect(color=IMPOSSIBLE, clip=True).encode(x=x, x2="end:Q")
    floor = drawn.transform_filter("datum.all").encode(y=alt.value(0), y2=alt.value("height"))
    text = base.transform_filter("datum.all").mark_text(
        text="no plan can be here", align="left", baseline="top", dx=4, dy=6, color=MUTED
    )
    below = drawn.transform_filter("!datum.all").encode(y=y, y2="high:Q")
    return [alt.layer(floor, below), alt.layer(text.encode(x=x, y=alt.value(0)))]


# Both.


def _data(rows: list[dict[str, Any]]) -> alt.Data:
    """Rows as text, which Altair neither copies nor checks value by value."""
    text = json.dumps(rows, separators=(",", ":"))
    return alt.Data(values=text, format=alt.DataFormat(type="json"))  # type: ignore[no-untyped-call]


def _unit(nbytes: int) -> tuple[str, float]:
    """The unit that suits numbers of bytes up to this one, and its size."""
    sizes = [2.0**10, 2.0**20, 2.0**30, 2.0**40]
    place = min(max(bisect_left(sizes, nbytes / 10) - 1, 0), 3)
    return ("KiB", "MiB", "GiB", "TiB")[place], sizes[place]


def _finished(chart: Any, title: str) -> alt.LayerChart:
    made = chart.properties(
        width=WIDTH, height=HEIGHT, title=alt.Title(title, anchor="start", color=INK)
    ).configure(
        background=BACKGROUND,
        view=alt.ViewConfig(stroke=None),
        axis=alt.AxisConfig(gridColor="#e9ecf1", labelColor=MUTED, titleColor=INK),
        legend=alt.LegendConfig(labelColor=INK, columns=4),
    )
    return cast(alt.LayerChart, made)
