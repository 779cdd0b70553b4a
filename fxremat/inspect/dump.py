"""A folder for each compiled graph: its plan, its report, its graphs and its charts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from uuid import uuid4

import networkx as nx

from fxremat.base.errors import OptionError
from fxremat.base.files import write_text
from fxremat.inspect.drawings.charts import SUFFIXES, save_chart
from fxremat.inspect.drawings.dot import to_dot
from fxremat.inspect.drawings.flows import flow_network
from fxremat.inspect.drawings.frontier import frontier_chart
from fxremat.inspect.drawings.graphs import backward_graph, forward_graph, joint_graph
from fxremat.inspect.drawings.svg import to_svg
from fxremat.inspect.drawings.timeline import timeline_chart
from fxremat.inspect.explain import Explainer
from fxremat.inspect.reports import to_html
from fxremat.plans.frontier import Frontier
from fxremat.plans.plan import Plan

__all__ = ["check_folder", "dump_plan"]

GRAPHS: dict[str, Callable[[Plan, Explainer], nx.DiGraph]] = {
    "joint": joint_graph,
    "network": flow_network,
    "forward": forward_graph,
    "backward": backward_graph,
}


def dump_plan(
    folder: str | PathLike[str],
    plan: Plan,
    *,
    forward: str = "",
    backward: str = "",
    joint: str = "",
    frontier: Frontier | None = None,
) -> Path:
    """Write all that can be shown of a plan into a new folder ``graph_0``, ``graph_1``, ...

    It is there as a whole or not at all, also where several processes write at once.

    Args:
        folder: where the new folder comes; made if it is not there.
        plan: the plan.
        forward: text of the forward's graph.
        backward: text of the backward's graph.
        joint: text of the joint graph.
        frontier: drawn too, if given.

    Returns:
        The new folder.

    Raises:
        OptionError: if the folder cannot be written.
    """
    plan.context  # noqa: B018 (raises before anything is written)
    parent = Path(folder)
    with _explained(parent):
        scratch = _scratch(parent)
        try:
            _write(scratch, plan, frontier)
            for name, text in (("joint", joint), ("forward", forward), ("backward", backward)):
                if text:
                    write_text(scratch / f"{name}.txt", text.rstrip("\n") + "\n")
            return _name(scratch, parent)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise


def check_folder(folder: str | PathLike[str]) -> None:
    """Make a folder for dumps, and see that it can be written.

    Raises:
        OptionError: if it cannot be made or written.
    """
    with _explained(Path(folder)):
        _scratch(Path(folder)).rmdir()


def _write(scratch: Path, plan: Plan, frontier: Frontier | None) -> None:
    plan.save(scratch / "plan.json")
    explainer = Explainer(plan)
    write_text(scratch / "plan.txt", f"{plan}\n\n{explainer.summary()}\n")
    for name, graph in GRAPHS.items():
        drawn = graph(plan, explainer)
        write_text(scratch / f"{name}.dot", to_dot(drawn))
        write_text(scratch / f"{name}.svg", to_svg(drawn))
    charts = {"timeline": timeline_chart(plan, explainer)}
    if frontier is not None:
        charts["frontier"] = frontier_chart(frontier, plan)
    for name, chart in charts.items():
        for suffix in SUFFIXES:
            save_chart(chart, scratch / f"{name}{suffix}")
    write_text(scratch / "report.html", to_html(plan, frontier, explainer=explainer))


def _scratch(parent: Path) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    scratch = parent / f".graph.{os.getpid()}.{uuid4().hex[:8]}"
    scratch.mkdir()
    return scratch


def _name(scratch: Path, parent: Path) -> Path:
    """Give a folder the first number that is free.

    Renaming onto a folder with files in it fails, so of two processes one takes the next number.
    """
    number = 0
    while True:
        target = parent / f"graph_{number}"
        if not os.path.lexists(target):
            try:
                return scratch.rename(target)
            except OSError:
                if not target.is_dir():
                    raise
        number += 1


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OptionError(
            f"dump={str(folder)!r}: the folder cannot be written "
            f"({error.strerror or error}); name one that can"
        ) from error
