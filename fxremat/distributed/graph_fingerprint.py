"""Whether two processes compile the same graph, told from short texts that they exchange.

Graphs are *alike* if they call the same ops on each other's results. They are *equal* if also all
sizes, dtypes and numbers are the same. What names the process itself counts for neither: the index
of its device, and the names of process groups, which differ from one row of a mesh to the next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from fxremat.costs.tensor_meta import hint
from passes.analysis.effects import COLLECTIVE

__all__ = ["GraphFingerprint", "graph_fingerprint", "hashed"]


@dataclass(frozen=True)
class GraphFingerprint:
    """What a graph is compared by.

    Attributes:
        ops: one line for each node: what it calls, and on which nodes' results.
        alike: hash of ``ops``.
        equal: hash of ``ops``, of all other arguments and of what the inputs are.
    """

    ops: tuple[str, ...]
    alike: str
    equal: str


def graph_fingerprint(module: fx.GraphModule, inputs: Sequence[Any]) -> GraphFingerprint:
    """What a graph that Dynamo captured is compared by.

    Args:
        module: the graph.
        inputs: what it is called with, real or fake.
    """
    lines = [*_lines(module)]
    ops = tuple(op for op, _ in lines)
    exact = [detail for _, detail in lines] + [_value(i) for i in inputs]
    return GraphFingerprint(ops, hashed(ops), hashed((*ops, *exact)))


def hashed(lines: Sequence[str]) -> str:
    """A hash of some lines."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _lines(module: fx.GraphModule) -> Iterator[tuple[str, str]]:
    """For each node its op with the nodes that it reads, and its other arguments."""
    place = {node: index for index, node in enumerate(module.graph.nodes)}
    for node, index in place.items():
        read = " ".join(str(place[n]) for n in node.all_input_nodes)
        target = _target(node)
        word = _of_collective if target.split(".")[0] in COLLECTIVE else _value
        yield (
            f"{index} {target}({read})",
            str(fx.node.map_aggregate((node.args, node.kwargs), word)),
        )
        inner = getattr(module, str(node.target), None) if node.op == "get_attr" else None
        if isinstance(inner, fx.GraphModule):
            yield from _lines(inner)


def _target(node: fx.Node) -> str:
    target: Any = node.target
    if node.op in ("placeholder", "output"):
        return node.op
    if isinstance(target, str):
        return f"{node.op} {target}"
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return str(target)
    name = getattr(target, "__qualname__", "") or getattr(target, "__name__", "")
    return f"{getattr(target, '__module__', '')}.{name or type(target).__name__}"


def _of_collective(value: Any) -> str:
    return "group" if isinstance(value, str) else _value(value)


def _value(value: Any) -> str:
    if isinstance(value, fx.Node):
        return "%"
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, torch.device):
        return value.type
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return "symbol"
    if isinstance(value, (bool, int, float, complex, torch.dtype, torch.layout, type(None))):
        return str(value)
    return type(value).__name__  # its text might hold an address


def _tensor(value: torch.Tensor) -> str:
    kind = type(value).__name__ if hasattr(value, "__tensor_flatten__") else "Tensor"
    sizes = [_size(s) for s in value.shape]
    text = f"{kind} {value.dtype} {sizes} {value.device.type} {value.requires_grad}"
    if kind == "Tensor":
        return text
    wrapper: Any = value
    names, _ = wrapper.__tensor_flatten__()  # of a DTensor the local part, whose size may differ
    return " ".join([text, *(_value(getattr(value, name)) for name in names)])


def _size(size: Any) -> str:
    try:
        return f"{hint(size)}{'' if isinstance(size, int) else '?'}"
    except Exception:  # the ragged size of a nested tensor has no number
        return "ragged"
