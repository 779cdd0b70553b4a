"""A report's page: data, style and script in one file."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from os import PathLike

from fxremat.base.files import write_text
from fxremat.inspect.explain import Explainer
from fxremat.inspect.reports.data import report_data
from fxremat.plans.frontier import Frontier
from fxremat.plans.plan import Plan

__all__ = ["to_html", "write_report"]

SCRIPTS = ("base.js", "timeline.js", "frontier.js", "table.js", "modules.js", "main.js")


def write_report(plan: Plan, path: str | PathLike[str], frontier: Frontier | None = None) -> None:
    """Write a report: one HTML file that needs no network.

    Args:
        plan: with its context.
        path: of the file.
        frontier: drawn beside the plan, if given.

    Raises:
        OptionError: if the plan has no context, or the file cannot be written.
    """
    write_text(path, to_html(plan, frontier))


def to_html(
    plan: Plan,
    frontier: Frontier | None = None,
    title: str = "",
    *,
    worth: bool = True,
    explainer: Explainer | None = None,
) -> str:
    """The report of a plan as the text of an HTML file.

    Args:
        plan: with its context.
        frontier: of the same graph, to be drawn.
        title: of the page.
        worth: search for what a little more memory would be worth, which takes seconds.
        explainer: of that plan, if there is one already: it keeps what it has worked out.

    Raises:
        OptionError: if the plan has no context.
    """
    data = report_data(explainer or Explainer(plan), frontier, title, worth=worth)
    page = _read("page.html")
    parts = {
        "title": html.escape(data["title"]),
        "style": _read("style.css"),
        "data": _in_script(json.dumps(data, separators=(",", ":"))),
        "script": "\n".join(map(_read, SCRIPTS)),
    }
    for name in parts:
        before, after = page.split(f"<!--{name}-->")
        page = before + f"\0{name}\0" + after
    for name, text in parts.items():  # all at once, so that no part is searched for another's mark
        page = page.replace(f"\0{name}\0", text.replace("\0", ""))
    return page


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _in_script(text: str) -> str:
    """JSON that no parser of HTML takes for markup: ``</script>`` in a line of code, say."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
