"""Drawings as graphviz's text: a strict parser takes it, and finds all nodes and edges."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import networkx as nx
import pytest

from fxremat.inspect.drawings.dot import to_dot
from fxremat.inspect.drawings.svg import to_svg
from fxremat.inspect.templates import quote
from tests.drawn import ALL, nasty
from tests.graphviz import statements
from tests.steps import half


@pytest.mark.parametrize("make", ALL)
def test_dot_has_each_node_and_edge_once(make: object) -> None:
    assert callable(make)
    graph: nx.DiGraph = make(half())
    nodes, arrows = statements(to_dot(graph))
    assert sorted(nodes) == sorted(quote(n) for n in graph)
    assert sorted(arrows) == sorted((quote(t), quote(h)) for t, h in graph.edges)


@pytest.mark.parametrize("make", ALL)
def test_odd_names_do_no_harm(make: object) -> None:
    assert callable(make)
    graph: nx.DiGraph = make(nasty())
    nodes, _ = statements(to_dot(graph))
    assert len(nodes) == len(graph)
    ET.fromstring(to_svg(graph))


def test_quoting() -> None:
    assert quote('say "x\\"') == '"say \\"x\\\\\\""'
    assert quote("two\nlines") == '"two\\nlines"'
    assert quote("bell\x07") == '"bell "'
