"""The frontier of a step, peak against time, as a chart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from fxremat.inspect.drawings.charts import HEIGHT, PICKED, WIDTH, finished, rows_of, unit_of
from fxremat.inspect.drawings.style import MUTED
from fxremat.plans.frontier import Frontier
from fxremat.plans.plan import Plan
from fxremat.plans.words import words

__all__ = ["frontier_chart"]

STRATEGY, CURVE, KNEE = "#c45500", "#0072b2", "#009e73"
IMPOSSIBLE = "#e8eaed"


def frontier_chart(frontier: Frontier, chosen: Plan | None = None) -> alt.LayerChart:
    """Peak against time: the plans, their knee, and what people do by hand.

    What costs far more than the curve stands at the upper edge, with its figure.

    Args:
        frontier: the plans.
        chosen: a plan to be marked.
    """
    unit, scale = unit_of(frontier.plans[0].baseline_peak)
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
        alt.Chart(rows_of([{**curve[0], "peak": right}, *curve]))
        .mark_line(interpolate="step-after", color=CURVE, strokeWidth=1.5, clip=True)
        .encode(x=x, y=y),
        alt.Chart(rows_of(rows))
        .mark_point(filled=True, opacity=1)
        .encode(
            x=x,
            y=y,
            color=alt.Color("what:N", legend=legend).scale(domain=domain, range=colours),
            shape=alt.Shape("what:N", legend=legend).scale(domain=domain, range=shapes),
            size=alt.Size("what:O", legend=legend).scale(domain=domain, range=sizes),
            tooltip=tooltip,
        ),
        alt.Chart(rows_of(_labels(rows, right, top)))
        .mark_text(align="left", baseline="middle", color=STRATEGY)
        .encode(x=x, y=y, text="label:N"),
    )
    return finished(chart, "Memory against time")


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
    base = alt.Chart(rows_of(boxes))
    drawn = base.mark_rect(color=IMPOSSIBLE, clip=True).encode(x=x, x2="end:Q")
    floor = drawn.transform_filter("datum.all").encode(y=alt.value(0), y2=alt.value("height"))
    text = base.transform_filter("datum.all").mark_text(
        text="no plan can be here", align="left", baseline="top", dx=4, dy=6, color=MUTED
    )
    below = drawn.transform_filter("!datum.all").encode(y=y, y2="high:Q")
    return [alt.layer(floor, below), alt.layer(text.encode(x=x, y=alt.value(0)))]
