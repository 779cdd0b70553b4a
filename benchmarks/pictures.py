"""Pictures of results. They need matplotlib; without it there are none, and a line that says so."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import MIB

__all__ = ["compared", "lines", "points"]

MARKS = {
    "eager": ("k*", "plain"),
    "compiled": ("k*", "plain"),
    "torch": ("rs", "torch's budgets"),
    "every": ("mD", "every k blocks"),
    "selective": ("g^", "selective"),
    "flag": ("cv", "Hugging Face's flag"),
    "fxremat": ("bo-", "fxremat"),
}
Series = Mapping[str, Sequence[tuple[float, float]]]


def compared(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Peak against time, a panel for each model."""
    figure = _figure()
    if figure is None:
        return
    done = [row for row in rows if row["status"] == "done" and row.get("time")]
    models = list(dict.fromkeys(row["model"] for row in done))
    wide = min(4, max(1, len(models)))
    high = max(1, -(-len(models) // wide))
    figure.set_size_inches(4 * wide, 3.2 * high)
    for place, model in enumerate(models, 1):
        axes = figure.add_subplot(high, wide, place)
        mine = [row for row in done if row["model"] == model]
        for kind, (mark, label) in MARKS.items():
            found = [r for r in mine if r["run"].split()[0] == kind]
            points = sorted((r["peak"] / MIB, r["time"]) for r in found)
            if points:
                axes.plot(*zip(*points, strict=True), mark, label=label, markersize=5)
        axes.set(title=model, xlabel="measured peak, MiB", ylabel="time over plain")
    if models:
        _legend(figure, len(models) < wide * high)
    figure.savefig(path)


def _legend(figure: Any, room: bool) -> None:
    """One for all panels: where there is room for a further panel, else in the first."""
    named: dict[str, Any] = {}
    for axes in figure.axes:
        named |= {
            label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
    if room:
        figure.legend(named.values(), named.keys(), loc="lower right", fontsize=11)
    else:
        figure.axes[0].legend(named.values(), named.keys(), fontsize=7)


def lines(series: Series, path: Path, across: str, up: str, log: bool = False) -> None:
    """A line for each of some series of points; with ``log`` on axes of powers of two and ten."""
    figure = _figure()
    if figure is None:
        return
    figure.set_size_inches(6, 4)
    axes = figure.add_subplot()
    for label, points in series.items():
        axes.plot(*zip(*sorted(points), strict=True), "o-", label=label, markersize=4)
    if log:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=10)
    _finish(axes, path, across, up)


def points(series: Series, path: Path, across: str, up: str) -> None:
    """Points in a square, with the line on which both are equal."""
    figure = _figure()
    if figure is None:
        return
    figure.set_size_inches(4.5, 4.5)
    axes = figure.add_subplot()
    for label, found in series.items():
        axes.plot(*zip(*found, strict=True), "o", label=label, markersize=4, alpha=0.6)
    most = max(max(point) for found in series.values() for point in found)
    axes.plot([0, most], [0, most], "k:", linewidth=1)
    _finish(axes, path, across, up)


def _finish(axes: Any, path: Path, across: str, up: str) -> None:
    axes.set(xlabel=across, ylabel=up)
    axes.legend(fontsize=8)
    axes.figure.savefig(path)


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: matplotlib is missing", file=sys.stderr)
        return None
    return Figure(layout="tight")
