"""Drawings of a plan: graphs for networkx, graphviz and the browser, and charts."""
