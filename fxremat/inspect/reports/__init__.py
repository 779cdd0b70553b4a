"""A plan as one HTML file: no network, no server, opens from disk."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from fxremat.base.files import write_text
from fxremat.plans.plan import Plan

if TYPE_CHECKING:
    from fxremat.inspect.explain import Explainer
    from fxremat.plans.frontier import Frontier

__all__ = ["to_html", "write_report"]


def write_report(plan: Plan, path: str | PathLike[str], frontier: Frontier | None = None) -> None:
    """Write a report: one HTML file that needs no network.

    Args:
        plan: with its context.
        path: of the file.
        frontier: drawn beside the plan, if given.

    Raises:
        OptionError: if the file cannot be written.
    """
    write_text(path, to_html(plan, frontier))


def to_html(
    plan: Plan,
    frontier: Frontier | None = None,
    title: str = "fxremat plan",
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
    """
    from fxremat.inspect.explain import Explainer
    from fxremat.inspect.reports.page import page  # needs libraries that training does not

    return page(explainer or Explainer(plan), frontier, title, worth=worth)
