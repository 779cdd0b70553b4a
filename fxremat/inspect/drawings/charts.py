"""Charts as specifications of Vega-Lite: what all of them share, and how they become files.

The same chart is drawn to a file and, with what answers the mouse, in the report.
"""

from __future__ import annotations

import io
import json
import re
from bisect import bisect_left
from os import PathLike
from pathlib import Path
from typing import Any, cast

import altair as alt

from fxremat.base.errors import OptionError
from fxremat.base.files import write_text, writing
from fxremat.inspect.drawings.style import BACKGROUND, INK, MUTED

__all__ = ["HEIGHT", "PICKED", "SUFFIXES", "WIDTH", "finished", "rows_of", "save_chart", "unit_of"]

SUFFIXES = (".svg", ".png")
WIDTH, HEIGHT = 760, 360
PICKED = "#c4006a"  # the colour of what the user chose: a budget, a plan


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


def rows_of(rows: list[dict[str, Any]]) -> alt.Data:
    """Rows as text, which Altair neither copies nor checks value by value."""
    text = json.dumps(rows, separators=(",", ":"))
    return alt.Data(values=text, format=alt.DataFormat(type="json"))  # type: ignore[no-untyped-call]


def unit_of(nbytes: int) -> tuple[str, float]:
    """The unit that suits numbers of bytes up to this one, and its size."""
    sizes = [2.0**10, 2.0**20, 2.0**30, 2.0**40]
    place = min(max(bisect_left(sizes, nbytes / 10) - 1, 0), 3)
    return ("KiB", "MiB", "GiB", "TiB")[place], sizes[place]


def finished(chart: Any, title: str) -> alt.LayerChart:
    """A chart with its title, size and looks."""
    made = chart.properties(
        width=WIDTH, height=HEIGHT, title=alt.Title(title, anchor="start", color=INK)
    ).configure(
        background=BACKGROUND,
        view=alt.ViewConfig(stroke=None),
        axis=alt.AxisConfig(gridColor="#e9ecf1", labelColor=MUTED, titleColor=INK),
        legend=alt.LegendConfig(labelColor=INK, columns=4),
    )
    return cast(alt.LayerChart, made)
