"""Every private torch name that fxremat reaches, in one place.

Tried with torch 2.13.0. When a new torch moves one of them, this is the file to mend; nothing else
in ``passes`` or ``fxremat`` imports a name with a leading underscore from torch. Inductor is
imported inside functions, since it is slow to import and only one of the inner compilers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._functorch.partitioners import _extract_fwd_bwd_modules
from torch._library.utils import is_impure
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import is_symbol_binding_fx_node

__all__ = [
    "FakeTensor",
    "HigherOrderOperator",
    "OpOverload",
    "extract_modules",
    "impure",
    "is_symbol_binding",
    "storage_key",
]

TRIED_WITH = ("2.13.0",)


def storage_key(tensor: torch.Tensor) -> int:
    """A key equal for tensors that share a storage, valid while one of them is alive."""
    return int(tensor.untyped_storage()._cdata)


def impure(node: fx.Node) -> bool:
    """Whether torch counts a call as having an effect beyond its result, random draws included."""
    return bool(is_impure(node.target, args=node.args, kwargs=node.kwargs, impure_random=True))


def is_symbol_binding(node: fx.Node) -> bool:
    """Whether a node is what defines a symbolic size, so that others depend on it by name."""
    return is_symbol_binding_fx_node(node) is not None


def extract_modules(
    joint: fx.GraphModule,
    saved: Sequence[fx.Node],
    saved_sizes: Sequence[fx.Node],
    num_fwd_outputs: int,
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Cut a joint graph at the saved nodes, in the order of arguments that AOTAutograd expects.

    Forward outputs: the user's, saved tensors, symbolic sizes. Backward inputs: symbolic sizes,
    saved tensors, tangents. torch's own function knows the rest of that contract (tensors without
    version check last, opaque objects, backward seeds and state), so it is used as it is.
    """
    forward, backward = _extract_fwd_bwd_modules(
        joint, list(saved), list(saved_sizes), num_fwd_outputs=num_fwd_outputs
    )
    return forward, backward


def graph_module(root: Any, graph: fx.Graph) -> fx.GraphModule:
    """A graph module over ``graph`` with the attributes of ``root``."""
    return fx.GraphModule(root, graph)
