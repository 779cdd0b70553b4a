"""Charts: the frontier of a step, and its memory over time. They need matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from fxremat.base.budget import format_bytes
from fxremat.inspect.drawings.figures import SUFFIXES, available, figure_for, unit_of
from fxremat.inspect.drawings.levels import baseline_levels, thinned
from fxremat.inspect.drawings.style import BACKGROUND, INK, MUTED
from fxremat.inspect.explain import Explainer
from fxremat.plans.frontier import Frontier
from fxremat.plans.plan import Plan
from fxremat.problem.liveness import Holding

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["SUFFIXES", "available", "frontier_chart", "timeline_chart"]

MOST = 400  # positions that a chart shows apart
FEW = 150  # up to so many are drawn as steps
FAINT = 0.004  # parts of less than this share of the peak are not seen, so not explained
# From the bottom; what is there longest lies lowest.
LAYERS = (
    (Holding.OUTPUT, "outputs", "#5b6570"),
    (Holding.TANGENT, "tangents", "#cc79a7"),
    (Holding.GRADIENT, "gradients", "#009e73"),
    (Holding.SAVED, "saved", "#0072b2"),
    (Holding.RECOMPUTED, "recomputed", "#e69f00"),
    (Holding.TEMPORARY, "temporaries", "#a5d3ee"),
)
WORKSPACE = ("workspace", "#d9dde2")
STRATEGY, CURVE, PICKED = "#c45500", "#0072b2", "#c4006a"


def frontier_chart(
    frontier: Frontier, path: str | PathLike[str], chosen: Plan | None = None
) -> None:
    """Draw peak against time: the plans, their knee, and what people do by hand.

    Args:
        frontier: the plans.
        path: of the file; its suffix, ``.svg`` or ``.png``, says what it is.
        chosen: a plan to be marked.

    Raises:
        OptionError: if matplotlib is missing, the suffix is another one, or the file cannot be
            written.
    """
    with figure_for(path) as figure:
        axes = figure.subplots()
        unit, scale = unit_of(frontier.plans[0].baseline_peak)
        _bound(axes, frontier, scale)
        _curve(axes, frontier, scale)
        _strategies(axes, frontier, scale)
        bend = frontier.knee
        if len(frontier) > 2:
            _mark(axes, bend, scale, "D", CURVE, f"knee: {_point(bend)}")
        if chosen is not None:
            _mark(axes, chosen, scale, "*", PICKED, f"this plan: {_point(chosen)}")
        axes.set_xlabel(f"peak of the step, {unit}")
        axes.set_ylabel("time for recomputing, % of a step")
        axes.set_title("Memory against time", loc="left", fontweight="bold")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=-0.02 * max(1.0, axes.get_ylim()[1]))
        axes.legend(loc="upper right", frameon=False)


def timeline_chart(plan: Plan, path: str | PathLike[str]) -> None:
    """Draw what is live at each op of the step, by why it is there.

    Args:
        plan: a plan with its context.
        path: of the file; its suffix, ``.svg`` or ``.png``, says what it is.

    Raises:
        OptionError: if the plan has no context, matplotlib is missing, the suffix is another one, or
            the file cannot be written.
    """
    explainer = Explainer(plan)
    line, before = explainer.occupancy, baseline_levels(explainer)
    bands = thinned(line, MOST)
    with figure_for(path) as figure:
        axes = figure.subplots()
        unit, scale = unit_of(max(plan.baseline_peak, plan.predicted_peak))
        _stack(axes, bands.positions, bands.parts, bands.workspace, scale)
        axes.plot(
            [p for p, _ in before],
            [n / scale for _, n in before],
            color=INK,
            linewidth=1.0,
            label="without recomputing",
            drawstyle="steps-mid" if len(line.ops) <= FEW else "default",
        )
        if plan.budget is not None:
            axes.axhline(plan.budget / scale, color=PICKED, linestyle="--", linewidth=1.3)
            _say(axes, 0.005, plan.budget / scale, f"budget {format_bytes(plan.budget)}", PICKED)
        _split(axes, line.boundary, len(line.ops))
        top = line.levels[line.peak] / scale if line.levels else 0.0
        axes.plot([line.peak], [top], "v", color=INK, markersize=6)
        axes.annotate(
            f"peak {format_bytes(plan.predicted_peak)}",
            (line.peak, top),
            xytext=(0, 9),
            textcoords="offset points",
            ha="center",
            bbox=_boxed(),
        )
        axes.set_xlabel("ops in the order in which the step runs them")
        axes.set_ylabel(f"live, {unit}")
        axes.set_title("Memory over one step", loc="left", fontweight="bold", pad=20)
        axes.margins(x=0)
        axes.set_ylim(bottom=0)
        handles, names = axes.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=4, frameon=False)


# The frontier.


def _curve(axes: Axes, frontier: Frontier, scale: float) -> None:
    """The plans, as steps: between two of them the one with the lower peak is the best known."""
    x = [p.predicted_peak / scale for p in frontier]
    y = [100 * p.overhead for p in frontier]
    right = max([*x, *(p.predicted_peak / scale for p in frontier.strategies.values())])
    axes.plot([right, *x], [y[0], *y], drawstyle="steps-pre", color=CURVE, linewidth=1.4, zorder=3)
    axes.plot(x, y, "o", color=CURVE, markersize=3.5, label="fxremat", zorder=3)


def _bound(axes: Axes, frontier: Frontier, scale: float) -> None:
    """Where no plan can be: below the bound on time, and left of the bound on the peak."""
    known = [p for p in reversed(frontier.plans) if p.step_seconds]
    floor = frontier.plans[0].floor / scale
    # A bound holds for all lower peaks too, so each reaches to the left as far as the next one.
    x = [floor, *(p.predicted_peak / scale for p in known)]
    y = [0.0, *(100 * p.lower_bound_seconds / p.step_seconds for p in known)]
    looks: dict[str, Any] = {"color": "#e8eaed", "linewidth": 0, "zorder": 1}
    axes.fill_between(x, y, step="pre", label="no plan can be here", **looks)
    axes.axvspan(0, floor, **looks)


def _strategies(axes: Axes, frontier: Frontier, scale: float) -> None:
    """What people do by hand; those at the same place share a label."""
    spots: dict[tuple[int, float], list[str]] = {}
    for name, plan in frontier.strategies.items():
        spots.setdefault((plan.predicted_peak, plan.overhead), []).append(name)
    if not spots:
        return
    axes.plot(
        [peak / scale for peak, _ in spots],
        [100 * share for _, share in spots],
        "s",
        color=STRATEGY,
        markersize=6,
        label="by hand",
        zorder=4,
    )
    for (peak, share), names in spots.items():
        axes.annotate(
            ", ".join(names),
            (peak / scale, 100 * share),
            xytext=(7, 5),
            textcoords="offset points",
            color=STRATEGY,
        )


def _mark(axes: Axes, plan: Plan, scale: float, form: str, colour: str, label: str) -> None:
    x, y = plan.predicted_peak / scale, 100 * plan.overhead
    axes.plot(
        [x], [y], form, color=colour, markersize=13 if form == "*" else 8, label=label, zorder=5
    )


def _point(plan: Plan) -> str:
    return f"{format_bytes(plan.predicted_peak)}, {plan.overhead:+.1%}"


# The timeline.


def _stack(
    axes: Axes,
    positions: Sequence[int],
    parts: dict[Holding, list[int]],
    workspace: Sequence[int],
    scale: float,
) -> None:
    known = [(parts[h], name, colour) for h, name, colour in LAYERS if any(parts[h])]
    if any(workspace):
        known.append((list(workspace), *WORKSPACE))
    least = FAINT * max(map(sum, zip(*(levels for levels, _, _ in known), strict=True)), default=0)
    bands = axes.stackplot(
        positions,
        [[n / scale for n in levels] for levels, _, _ in known],
        colors=[colour for _, _, colour in known],
        linewidth=0,
        step="mid" if len(positions) <= FEW else None,
    )
    for band, (levels, name, _) in zip(bands, known, strict=True):
        band.set_label(name if max(levels) > least else "_" + name)


def _split(axes: Axes, boundary: int, count: int) -> None:
    """Say where the forward ends."""
    if not 0 < boundary < count:
        return
    axes.axvline(boundary - 0.5, color=MUTED, linewidth=1.0, linestyle=":")
    for x, align, text in (
        (boundary - 0.5, "right", "forward "),
        (boundary - 0.5, "left", " backward"),
    ):
        axes.text(
            x, 1.01, text, ha=align, va="bottom", color=MUTED, transform=axes.get_xaxis_transform()
        )


def _say(axes: Axes, x: float, y: float, text: str, colour: str) -> None:
    axes.text(
        x,
        y,
        text,
        color=colour,
        va="bottom",
        transform=axes.get_yaxis_transform(),
        bbox=_boxed(),
    )


def _boxed() -> dict[str, Any]:
    return {
        "boxstyle": "round,pad=0.15",
        "facecolor": BACKGROUND,
        "edgecolor": "none",
        "alpha": 0.85,
    }
