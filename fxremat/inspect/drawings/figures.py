"""Figures of matplotlib that are the same each time and leave the user's settings alone."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxremat.base.errors import OptionError
from fxremat.base.files import writing
from fxremat.inspect.drawings.style import BACKGROUND, INK, MUTED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["SUFFIXES", "available", "figure_for", "unit_of"]

SIZE = (9.0, 4.8)  # inches
DOTS = 150  # a PNG's pixels an inch
SUFFIXES = (".svg", ".png")


def available() -> bool:
    """Whether charts can be drawn: matplotlib is installed."""
    return find_spec("matplotlib") is not None


def unit_of(nbytes: int) -> tuple[str, float]:
    """The unit that suits numbers of bytes up to this one, and its size."""
    sizes = [2.0**10, 2.0**20, 2.0**30, 2.0**40]
    place = min(max(bisect_left(sizes, nbytes / 10) - 1, 0), 3)
    return ("KiB", "MiB", "GiB", "TiB")[place], sizes[place]


@contextmanager
def figure_for(path: str | PathLike[str]) -> Iterator[Figure]:
    """A figure that is written to a file afterwards, with the same bytes for the same figure."""
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise OptionError(f"{target}: a chart is an .svg or a .png file; name one of these")
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise OptionError(
            "charts need matplotlib, which is not installed: pip install fxremat[pictures]"
        ) from error
    looks: dict[Any, Any] = {
        "svg.hashsalt": "fxremat",
        "svg.fonttype": "none",
        "font.size": 9.5,
        "text.color": INK,
        "axes.edgecolor": MUTED,
        "axes.labelcolor": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
    }
    # Whatever the user has set for charts of their own, save what picks a window.
    plain: dict[Any, Any] = {
        k: v for k, v in matplotlib.rcParamsDefault.items() if not k.startswith("backend")
    }
    with matplotlib.rc_context({**plain, **looks}):
        figure = Figure(figsize=SIZE, facecolor=BACKGROUND, layout="constrained")
        yield figure
        dated = {"Date": None} if target.suffix.lower() == ".svg" else {"Software": None}
        with writing(target):
            figure.savefig(target, dpi=DOTS, metadata=dated)
