"""Pictures of results, one file each: .png or .svg."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt

from benchmarks.harness import MIB, Row

__all__ = ["compared", "lines", "points"]

KINDS = {
    "eager": "plain",
    "compiled": "plain",
    "torch": "torch's budgets",
    "every": "every k blocks",
    "selective": "selective",
    "flag": "Hugging Face's flag",
    "fxremat": "fxremat",
}
Series = Mapping[str, Sequence[tuple[float, float]]]


def compared(rows: Sequence[Row], path: Path) -> None:
    """Peak against time, a panel for each model."""
    data = [
        {
            "model": row["model"],
            "way": KINDS[row["run"].split()[0]],
            "peak": row["peak"] / MIB,
            "time": row["time"],
        }
        for row in rows
        if row["status"] == "done" and row.get("time")
    ]
    if not data:
        return
    ways = [way for way in dict.fromkeys(KINDS.values()) if any(d["way"] == way for d in data)]
    base = alt.Chart().encode(
        x=alt.X("peak:Q", title="measured peak, MiB"),
        y=alt.Y("time:Q", title="time over plain").scale(zero=False),
        color=alt.Color("way:N", sort=ways, title=None),
    )
    mine = base.mark_line().transform_filter(alt.datum.way == "fxremat")
    dots = base.mark_point(filled=True).encode(shape=alt.Shape("way:N", sort=ways, legend=None))
    panels = alt.layer(mine, dots, data=alt.InlineData(data)).properties(width=220, height=160)
    facets = panels.facet(alt.Facet("model:N", title=None, sort=None), columns=4)
    facets.resolve_scale(x="independent", y="independent").save(path, scale_factor=1.5)


def lines(series: Series, path: Path, across: str, up: str) -> None:
    """A line for each of some series of points, on axes of powers of two and of ten."""
    chart = (
        _chart(series)
        .mark_line(point=True)
        .encode(
            x=alt.X("x:Q", title=across).scale(type="log", base=2),
            y=alt.Y("y:Q", title=up).scale(type="log"),
        )
    )
    _save(chart, path)


def points(series: Series, path: Path, across: str, up: str) -> None:
    """Points in a square, with the line on which both are equal."""
    most = max(max(point) for found in series.values() for point in found)
    ends = [{"x": end, "y": end} for end in (0, most)]
    same = alt.Chart(alt.InlineData(ends)).mark_line(color="black", strokeDash=[2, 3], size=1)
    dots = _chart(series).mark_circle(opacity=0.6)
    both = (
        same.encode(x="x:Q", y="y:Q"),
        dots.encode(alt.X("x:Q", title=across), alt.Y("y:Q", title=up)),
    )
    _save(alt.layer(*both), path)


def _chart(series: Series) -> Any:
    data = [{"of": of, "x": x, "y": y} for of, found in series.items() for x, y in found]
    return alt.Chart(alt.InlineData(data)).encode(
        color=alt.Color("of:N", title=None, sort=list(series))
    )


def _save(chart: Any, path: Path) -> None:
    chart.properties(width=380, height=280).save(path, scale_factor=1.5)
