"""A layered layout: where boxes stand so that edges run downwards and rarely cross.

Sugiyama's method (1981): nodes are put into layers by longest path, long edges are broken at the
layers that they pass, the order within layers is improved by sweeps that put each node at the mean
of its neighbours, and coordinates are the nearest ones to those means that keep boxes apart.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

__all__ = ["Box", "Layout", "layered"]

GAP, RISE = 18.0, 26.0  # between boxes of a layer, between layers
LANE = 10.0  # what a passing edge takes up
SPAN = 40  # edges over more layers are not broken: their lanes would fill the picture
BIG = 12_000  # boxes and lanes beyond which nothing is swept
SWEEPS, ROUNDS = 8, (8, 40)
WORK = 40_000  # boxes and lanes moved in all rounds together, from which on rounds get fewer

Point = tuple[float, float]
Edge = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Box:
    """Where a node stands.

    Attributes:
        x: its centre.
        y: its centre.
        width: its full width.
        height: its full height.
    """

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Layout:
    """Where everything stands, in pixels from the top left.

    Attributes:
        boxes: of the nodes.
        lanes: for each edge the points that it passes between its ends, from the top.
        layers: the layer of each node.
        width: of the whole.
        height: of the whole.
    """

    boxes: Mapping[str, Box]
    lanes: Mapping[Edge, tuple[Point, ...]]
    layers: Mapping[str, int]
    width: float
    height: float


@dataclass
class _Grid:
    """Layers under construction; what passes through a layer is a member of it, as an int.

    Attributes:
        rows: members of each layer, from the left.
        widths: of each member.
        above: neighbours of each member one layer up.
        below: one layer down.
        passing: the members that stand for each broken edge.
    """

    rows: list[list[object]]
    widths: dict[object, float]
    above: dict[object, list[object]]
    below: dict[object, list[object]]
    passing: dict[Edge, list[object]]


def layered(
    graph: nx.DiGraph, widths: Mapping[str, float], height: float, sides: Mapping[str, int]
) -> Layout:
    """Lay out a graph without cycles.

    Args:
        graph: the graph.
        widths: of the boxes, in pixels.
        height: of a box, in pixels.
        sides: nodes that stand at the left (-1) or at the right (1) of their layers.
    """
    layers = _layers(graph)
    grid = _grid(graph, layers, widths)
    for row in grid.rows:
        row.sort(key=lambda m: sides.get(str(m), 0))
    if len(grid.widths) <= BIG:
        _sweep(grid, sides)
    places = _places(grid, sides)
    step = height + RISE
    low = min((places[m] - grid.widths[m] / 2 for row in grid.rows for m in row), default=0.0)
    high = max((places[m] + grid.widths[m] / 2 for row in grid.rows for m in row), default=0.0)
    boxes = {
        node: Box(places[node] - low, layers[node] * step + height / 2, widths[node], height)
        for node in graph
    }
    lanes = {
        edge: tuple(
            (places[m] - low, (layers[edge[0]] + 1 + i) * step + height / 2)
            for i, m in enumerate(members)
        )
        for edge, members in grid.passing.items()
    }
    return Layout(boxes, lanes, layers, high - low, max(0.0, len(grid.rows) * step - RISE))


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
    rank = {node: i for i, node in enumerate(graph)}
    main = sorted(rank[node] for node in parts[0]) if parts else []
    nodes = list(graph)
    for part in parts[1:]:
        first = min(part, key=lambda node: (layer[node], rank[node]))
        before = bisect_left(main, max(rank[node] for node in part))
        shift = layer[nodes[main[max(before - 1, 0)]]] - layer[first]
        for node in part:
            layer[node] += shift


def _grid(graph: nx.DiGraph, layers: Mapping[str, int], widths: Mapping[str, float]) -> _Grid:
    rows: list[list[object]] = [[] for _ in range(max(layers.values(), default=-1) + 1)]
    for node in graph:
        rows[layers[node]].append(node)
    grid = _Grid(rows, {n: widths[n] for n in graph}, {}, {}, {})
    lane = 0
    for tail, head in graph.edges:
        span = layers[head] - layers[tail]
        if span > SPAN:
            continue
        members: list[object] = list(range(lane, lane + span - 1))
        lane += span - 1
        for i, member in enumerate(members):
            rows[layers[tail] + 1 + i].append(member)
            grid.widths[member] = LANE
        if members:
            grid.passing[tail, head] = members
        path = [tail, *members, head]
        for up, down in pairwise(path):
            grid.below.setdefault(up, []).append(down)
            grid.above.setdefault(down, []).append(up)
    return grid


def _sweep(grid: _Grid, sides: Mapping[str, int]) -> None:
    """Order each layer by the mean place of its neighbours, downwards and upwards."""

    def key(member: object, near: Mapping[object, list[object]]) -> tuple[int, float]:
        mean = _mean([place[n] for n in near.get(member, ())], place[member])
        return sides.get(str(member), 0), mean

    place = {m: i for row in grid.rows for i, m in enumerate(row)}
    best, fewest = [list(row) for row in grid.rows], _crossings(grid, place)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        near = grid.above if down else grid.below
        for row in grid.rows if down else reversed(grid.rows):
            row.sort(key=partial(key, near=near))
            place.update((m, i) for i, m in enumerate(row))
        found = _crossings(grid, place)
        if found < fewest:
            best, fewest = [list(row) for row in grid.rows], found
    grid.rows[:] = best


def _mean(numbers: Sequence[float], otherwise: float) -> float:
    return sum(numbers) / len(numbers) if numbers else otherwise


def _crossings(grid: _Grid, place: Mapping[object, int]) -> int:
    """How many pairs of edges between neighbouring layers cross."""
    total = 0
    for row in grid.rows:
        ends = [sorted(place[n] for n in grid.below.get(m, ())) for m in row]
        heads = np.array([e for one in ends for e in one])
        if len(heads) > 1:
            total += int(np.triu(heads[:, None] > heads[None, :], 1).sum())
    return total


def _places(grid: _Grid, sides: Mapping[str, int]) -> dict[object, float]:
    """A centre for each member: near its neighbours, in order, and apart from the next."""
    places: dict[object, float] = {}
    for row in grid.rows:
        offsets = _offsets(grid, row)
        middle = (offsets[0] + offsets[-1]) / 2 if len(row) else 0.0
        places.update((m, float(o - middle)) for m, o in zip(row, offsets, strict=True))
    if len(grid.widths) > BIG:
        return places
    least, most = ROUNDS
    for turn in range(min(most, max(least, WORK // max(1, len(grid.widths))))):
        rows: Iterable[list[object]] = grid.rows if turn % 2 == 0 else reversed(grid.rows)
        for row in rows:
            _settle(grid, row, places, sides)
    return places


def _offsets(grid: _Grid, row: Sequence[object]) -> NDArray[np.float64]:
    """The least distances of a layer's members from its first one."""
    half = np.array([grid.widths[m] / 2 for m in row])
    return np.concatenate(([0.0], np.cumsum(half[:-1] + half[1:] + GAP))) if len(row) else half


def _settle(
    grid: _Grid, row: Sequence[object], places: dict[object, float], sides: Mapping[str, int]
) -> None:
    """Move a layer's members as near to their neighbours as their order and widths allow."""
    wanted, weights = [], []
    for member in row:
        near = [*grid.above.get(member, ()), *grid.below.get(member, ())]
        if member not in sides:
            near = [n for n in near if n not in sides] or near
        wanted.append(_mean([places[n] for n in near], places[member]))
        # What stands aside gives way, so that the others stand in line.
        weights.append(0.01 if member in sides else 1.0)
    if len(row) == 1:
        fitted = np.array(wanted)
    else:
        offsets = _offsets(grid, row)
        fitted = isotonic_regression(np.array(wanted) - offsets, weights=weights).x + offsets
    places.update((m, float(x)) for m, x in zip(row, fitted, strict=True))
