"""A layered layout: where boxes stand so that edges run downwards and rarely cross.

Sugiyama's method (1981): nodes are put into layers by longest path, long edges are broken at the
layers that they pass, the order within layers is improved by sweeps that put each node at the mean
of its neighbours, and coordinates are the nearest ones to those means that keep boxes apart.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np
from scipy.optimize import isotonic_regression

__all__ = ["HEIGHT", "Layout", "Point", "layered"]

HEIGHT = 32.0  # of a box
GAP, RISE = 18.0, 26.0  # between boxes of a layer, between layers
LANE = 10.0  # what a passing edge takes up
SPAN = 40  # edges over more layers are not broken: their lanes would fill the picture
SWEEPS, ROUNDS = 8, 20
WORK = 40_000  # boxes and lanes moved in all rounds together, from which on rounds get fewer

Point = tuple[float, float]
Member = Hashable  # of a layer: a node, or (tail, head, number) for an edge that passes
Rows = Sequence[list[Member]]


@dataclass(frozen=True)
class Layout:
    """Where everything stands, in pixels from the top left.

    Attributes:
        centres: of the nodes.
        lanes: for each edge the points that it passes between its ends, from the tail.
        width: of the whole.
        height: of the whole.
    """

    centres: Mapping[str, Point]
    lanes: Mapping[tuple[str, str], Sequence[Point]]
    width: float
    height: float

    def moved(self, move: Callable[[Point], Point], height: float) -> Layout:
        """The same with all points moved, in a picture of another height."""
        centres = {node: move(point) for node, point in self.centres.items()}
        lanes = {edge: [move(point) for point in points] for edge, points in self.lanes.items()}
        return Layout(centres, lanes, self.width, height)


def layered(graph: nx.DiGraph, widths: Mapping[str, float], sides: Mapping[str, int]) -> Layout:
    """Lay out a graph without cycles.

    Args:
        graph: the graph.
        widths: of the boxes, in pixels.
        sides: nodes that stand at the left (-1) or at the right (1) of their layers.
    """
    grid = _grid(graph, _layers(graph), widths)
    rows: list[list[Member]] = []
    for member, layer in sorted(grid.nodes(data="layer"), key=lambda m: m[1]):
        rows += [[] for _ in range(layer + 1 - len(rows))]
        rows[layer].append(member)
    _sweep(grid, rows, sides)
    across = _places(grid, rows, sides)
    half = {m: grid.nodes[m]["width"] / 2 for m in grid}
    left = min((across[m] - half[m] for m in grid), default=0.0)
    right = max((across[m] + half[m] for m in grid), default=0.0)
    places = {
        m: (across[m] - left, layer * (HEIGHT + RISE) + HEIGHT / 2)
        for m, layer in grid.nodes(data="layer")
    }
    lanes: dict[tuple[str, str], list[Point]] = {}
    for member in grid:
        if member not in graph:
            lanes.setdefault(member[:2], []).append(places[member])
    height = max(0.0, len(rows) * (HEIGHT + RISE) - RISE)
    return Layout({n: places[n] for n in graph}, lanes, right - left, height)


def _layers(graph: nx.DiGraph) -> dict[str, int]:
    """The layer of each node: below all that it reads, and right above the first that reads it."""
    order = list(nx.topological_sort(graph))
    layer: dict[str, int] = {}
    for node in order:
        layer[node] = max((layer[p] + 1 for p in graph.pred[node]), default=0)
    for node in reversed(order):
        if graph.succ[node]:
            layer[node] = min(layer[s] for s in graph.succ[node]) - 1
    _bring_near(graph, layer)
    first = min(layer.values(), default=0)
    return {node: layer[node] - first for node in graph}


def _bring_near(graph: nx.DiGraph, layer: dict[str, int]) -> None:
    """Put each part that hangs together beside what stands before it in the graph's order."""
    parts = sorted(nx.weakly_connected_components(graph), key=len, reverse=True)
    nodes = list(graph)
    rank = {node: i for i, node in enumerate(nodes)}
    main = sorted(rank[node] for node in parts[0]) if parts else []
    for part in parts[1:]:
        before = bisect_left(main, max(rank[node] for node in part))
        shift = layer[nodes[main[max(before - 1, 0)]]] - min(layer[node] for node in part)
        for node in part:
            layer[node] += shift


def _grid(graph: nx.DiGraph, layers: Mapping[str, int], widths: Mapping[str, float]) -> nx.DiGraph:
    """The graph with long edges broken: each edge leads to the next layer."""
    grid = nx.DiGraph()
    for node in graph:
        grid.add_node(node, layer=layers[node], width=widths[node])
    for tail, head in graph.edges:
        span = layers[head] - layers[tail]
        if span > SPAN:
            continue
        passing = [(tail, head, i) for i in range(1, span)]
        for lane in passing:
            grid.add_node(lane, layer=layers[tail] + lane[2], width=LANE)
        nx.add_path(grid, [tail, *passing, head])
    return grid


def _sweep(grid: nx.DiGraph, rows: Rows, sides: Mapping[str, int]) -> None:
    """Order each layer by the mean place of its neighbours, downwards and upwards."""
    keys: dict[Member, tuple[int, float]] = {}
    place = {m: float(i) for row in rows for i, m in enumerate(row)}
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        near = grid.pred if down else grid.succ
        for row in rows if down else reversed(rows):
            for member in row:
                mean = _mean([place[n] for n in near[member]], place[member])
                keys[member] = (sides.get(member, 0), mean)  # type: ignore[call-overload]
            row.sort(key=keys.__getitem__)
            place.update((m, float(i)) for i, m in enumerate(row))


def _mean(numbers: Sequence[float], otherwise: float) -> float:
    return sum(numbers) / len(numbers) if numbers else otherwise


def _places(grid: nx.DiGraph, rows: Rows, sides: Mapping[str, int]) -> dict[Member, float]:
    """A centre for each member: near its neighbours, in order, and apart from the next."""
    places: dict[Member, float] = {}
    offsets = []  # the least distances of a layer's members from its first one
    for row in rows:
        half = np.array([grid.nodes[m]["width"] / 2 for m in row])
        offsets.append(np.concatenate(([0.0], np.cumsum(half[:-1] + half[1:] + GAP))))
        places.update(zip(row, offsets[-1] - offsets[-1][-1] / 2, strict=True))
    numbered = list(zip(rows, offsets, strict=True))
    for turn in range(min(ROUNDS, max(2, WORK // max(1, len(grid))))):
        found: Iterable[tuple[list[Member], np.ndarray]] = numbered
        for row, least in found if turn % 2 == 0 else reversed(numbered):
            # What stands aside gives way, so that the others stand in line.
            weights = [0.01 if m in sides else 1.0 for m in row]
            wanted = np.array([_wanted(grid, m, places, sides) for m in row]) - least
            fitted = isotonic_regression(wanted, weights=weights).x if len(row) > 1 else wanted
            places.update(zip(row, (fitted + least).tolist(), strict=True))
    return places


def _wanted(
    grid: nx.DiGraph, member: Member, places: Mapping[Member, float], sides: Mapping[str, int]
) -> float:
    near = [*grid.pred[member], *grid.succ[member]]
    if member not in sides:
        near = [n for n in near if n not in sides] or near
    return _mean([places[n] for n in near], places[member])
