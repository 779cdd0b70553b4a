"""How Inductor takes ops apart, and which of them it leaves to ATen's own kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.lowering import fallbacks

__all__ = ["decompositions", "is_external"]


def is_external(node: fx.Node) -> bool:
    """Whether Inductor calls ATen's own kernel for an op, whose workspace then counts."""
    aten = torch.ops.aten
    kept = (aten.convolution, aten.mm, aten.addmm, aten.bmm, aten.baddbmm)
    packet = getattr(node.target, "overloadpacket", None)
    return node.target in fallbacks or packet in fallbacks or packet in kept


def decompositions() -> dict[Any, Callable[..., Any]]:
    """How Inductor takes ops apart before it compiles them."""
    return dict(select_decomp_table())
