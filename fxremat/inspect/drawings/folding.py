"""The joint graph by module: ops of a module that is not opened are one box."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any

import networkx as nx

from fxremat.base.units import count, format_bytes, format_seconds
from fxremat.inspect.drawings.graphs import HALVES

__all__ = ["folded", "prefixes"]


def folded(joint: nx.DiGraph, opened: Collection[str], within: str = "") -> nx.DiGraph:
    """The joint graph with the ops of each module that is not opened drawn as one box in each half.

    Inputs are left out. An edge that leads back, since a module runs twice, has ``back``. Boxes
    of modules have ``fold``, the path of the module.

    Args:
        joint: what :func:`fxremat.inspect.drawings.graphs.joint_graph` makes.
        opened: paths of modules that are opened, "" among them.
        within: path of a module: only it and what touches it is shown; "" for all.
    """
    members = _members(joint)
    halves = [f"module:{within}:{half}" for half in HALVES]
    inside = [op for half in halves for op in members.get(half, ())]
    touching = {(t, h): d for t, h, d in joint.out_edges(inside, data=True)}
    touching |= {(t, h): d for t, h, d in joint.in_edges(inside, data=True)}
    place: dict[str, str] = {}
    for node in (*inside, *(end for edge in touching for end in edge)):
        data = joint.nodes[node]
        if data["form"] == "op":
            place[node] = _fold(node, data["module"], data["half"], opened)
    edges: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for (tail, head), data in touching.items():
        if tail in place and head in place and place[tail] != place[head]:
            edges.setdefault((place[tail], place[head]), []).append(data)
    graph = nx.DiGraph(name="modules", title=within or "The joint graph by module", notes=())
    shown = set(place.values())
    for name in members:
        if name in shown:
            graph.add_node(name, **_box(joint, name, members[name]))
    order = {name: i for i, name in enumerate(graph)}
    for (tail, head), merged in edges.items():
        graph.add_edge(tail, head, back=order[tail] > order[head], **_merged(merged))
    return graph


@lru_cache(maxsize=1)
def _members(joint: nx.DiGraph) -> dict[str, list[str]]:
    """The ops of each module in each half, and each op by itself, in the order of the graph."""
    found: dict[str, list[str]] = {}
    for node, data in joint.nodes(data=True):
        if data["form"] == "op":
            found.setdefault(node, []).append(node)
            for module in ("", *prefixes(data["module"])):
                found.setdefault(f"module:{module}:{data['half']}", []).append(node)
    return found


def prefixes(module: str) -> list[str]:
    """A module and all that it is part of, the outermost first."""
    parts = module.split(".") if module else []
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def _fold(node: str, module: str, half: str, opened: Collection[str]) -> str:
    """The outermost module around an op that is not opened, or the op itself."""
    closed = next((m for m in prefixes(module) if m not in opened), "")
    return f"module:{closed}:{half}" if closed else node


def _box(joint: nx.DiGraph, name: str, members: Sequence[str]) -> dict[str, Any]:
    """The attributes of a box that stands for some ops of one half."""
    if not name.startswith("module:"):
        return dict(joint.nodes[name])
    module, half = name.removeprefix("module:").rsplit(":", 1)
    ops = [joint.nodes[m] for m in members]
    seconds = sum(d["seconds"] for d in ops)
    again = sum(d["seconds"] * d["runs"] for d in ops)
    kinds = [k for k in ("recomputed", "saved", half) if any(d["kind"] == k for d in ops)]
    more = f", {format_seconds(again)} again" if again else ""
    facts = f"{format_seconds(seconds)}{more}"
    return {
        "label": module,
        "form": "op",
        "kind": kinds[0] if kinds else half,
        "bytes": sum(d["bytes"] for d in ops),
        "seconds": seconds,
        "runs": sum(d["runs"] for d in ops),
        "module": module,
        "half": half,
        "fold": module,
        "facts": facts,
        "tip": f"{count(len(ops), 'op')} of the {half}\n{facts}",
    }


def _merged(edges: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The attributes of an edge that stands for several, of the kind that matters most."""
    order = ("saved", "held", "recomputed", "value")
    kind, *_ = sorted((d["kind"] for d in edges), key=order.index)
    sizes = {d["values"]: d["bytes"] for d in edges if d["kind"] == kind}
    values = tuple(dict.fromkeys(v for names in sizes for v in names))
    nbytes = sum(sizes.values())
    named = ", ".join(values[:6]) + (f", {len(values) - 6} more" if len(values) > 6 else "")
    return {
        "values": values,
        "bytes": nbytes,
        "kind": kind,
        "cut": kind in ("saved", "held"),
        "facts": format_bytes(nbytes),
        "tip": f"{kind}: {format_bytes(nbytes)} in {count(len(values), 'value')}\n{named}",
    }
