"""The one way in which runs are put in order: whatever is needed first, right before its user."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

__all__ = ["depth_first"]


def depth_first(root: int, needs: Callable[[int], Iterable[int]], done: set[int]) -> Iterator[int]:
    """What a node needs, itself or through others, each right before its first user; then the node.

    Args:
        root: the node.
        needs: the nodes that a node needs, in order; there are no cycles.
        done: nodes to leave out. What is yielded is added.
    """
    stack = [(root, iter(needs(root)))]
    while stack:
        node, rest = stack[-1]
        for below in rest:
            if below not in done:
                stack.append((below, iter(needs(below))))
                break
        else:
            stack.pop()
            done.add(node)
            yield node
