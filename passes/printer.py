"""Stable text of a graph, for goldens, error messages and dumps.

::

    x: f32[4, 8] = placeholder
    t: f32[8, 16] = aten.t(w)
    mm: f32[4, 16] = aten.mm(x, t)
    sum_1: f32[4] = aten.sum.dim_IntList(mm, [1])
    return (sum_1)

The text holds names, targets, arguments, dtypes and sizes, and nothing that changes from run to
run: no addresses, no file or module paths. The overload ``default`` is left out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.types import py_sym_types

__all__ = ["render", "target_text", "type_text"]


def render(graph: Graph | GraphModule) -> str:
    """Write a graph as text, one line a node, in the order of the graph.

    Args:
        graph: a graph, or a module that holds one.

    Returns:
        Lines ``name: type = target(arguments)``, each ended by a newline. The type comes from
        ``meta["val"]`` and is left out where that is missing; sizes that are symbolic are
        written by name.
    """
    nodes = graph.graph.nodes if isinstance(graph, GraphModule) else graph.nodes
    return "".join(f"{_line(node)}\n" for node in nodes)


def _line(node: Node) -> str:
    if node.op == "output":
        return f"return {_argument(node.args[0])}"
    kind = type_text(node.meta.get("val"))
    return f"{node.name}{': ' if kind else ''}{kind} = {_expression(node)}"


def _expression(node: Node) -> str:
    if node.op == "placeholder":
        return f"placeholder({', '.join(map(_argument, node.args))})" if node.args else node.op
    if node.op == "get_attr":
        return f"get_attr({node.target})"
    positional = [_argument(arg) for arg in node.args]
    named = [f"{key}={_argument(arg)}" for key, arg in node.kwargs.items()]
    return f"{target_text(node)}({', '.join((*positional, *named))})"


def target_text(node: Node) -> str:
    """What a node calls, such as ``aten.mm``."""
    target: Any = node.target
    if isinstance(target, str):
        return f"{node.op}[{target}]"
    if isinstance(target, torch._ops.OpOverload):
        return str(target).removesuffix(".default")
    return str(getattr(target, "__name__", type(target).__name__))


def type_text(val: object) -> str:
    """A traced value's dtype and sizes, such as ``f32[8, 16]``; "" for None."""
    if val is None:
        return ""
    if isinstance(val, torch.Tensor):
        return f"{_dtype(val.dtype)}[{', '.join(map(str, val.shape))}]"
    if isinstance(val, py_sym_types):
        return f"{type(val).__name__}({val})"
    if isinstance(val, tuple | list):
        return f"({', '.join(type_text(item) or 'None' for item in val)})"
    return type(val).__name__


def _dtype(dtype: torch.dtype) -> str:
    return "bool" if dtype is torch.bool else dtype.abbr


def _argument(arg: object) -> str:
    if isinstance(arg, Node):
        return arg.name
    if isinstance(arg, tuple | list):
        left, right = "()" if isinstance(arg, tuple) else "[]"
        return f"{left}{', '.join(map(_argument, arg))}{right}"
    if isinstance(arg, dict):
        return f"{{{', '.join(f'{key}: {_argument(item)}' for key, item in arg.items())}}}"
    if isinstance(arg, slice):
        return ":".join("" if p is None else _argument(p) for p in (arg.start, arg.stop, arg.step))
    return _constant(arg)


def _constant(arg: object) -> str:
    if isinstance(arg, torch.dtype):
        return _dtype(arg)
    if arg is None or isinstance(arg, bool | int | float | complex | str):
        return repr(arg)
    if isinstance(arg, torch.layout | torch.memory_format):
        return str(arg).removeprefix("torch.")
    if isinstance(arg, (torch.device, torch._ops.OpOverload, *py_sym_types)):
        return str(arg)
    # The repr of anything else may hold an address or a path.
    return f"<{type(arg).__name__}>"
