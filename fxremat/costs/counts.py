"""FLOPs and bytes moved of a graph node: formulas, and tables of what ops do not read or write.

FLOPs come from the formulas of ``torch.utils.flop_counter``, with a few of ours where it has none
or a wrong one; torch's table stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree
from torch.utils import flop_counter

from fxremat.costs.tensor_meta import hint, is_symbolic, outside_fakes, tensors_read, values_given
from passes.node_utils import packet, tensors_in
from passes.torch_internals import storage_key

__all__ = ["bytes_read", "bytes_written", "flops"]

aten = torch.ops.aten


# ---------------------------------------------------------------------------------------- FLOPs


def _conv_backward_flops(grad: Any, x: Any, w: Any, *rest: Any, **_: Any) -> int:
    """Each wanted gradient (input, weight) costs what the forward does, groups or not.

    torch's formula takes the gradient of the weight for dense, so a depthwise convolution would
    count as many times too much as it has groups.
    """
    transposed, mask = rest[4], rest[7]
    once = flop_counter.conv_flop_count(
        list(x.shape), list(w.shape), list(grad.shape), transposed=transposed
    )
    return int(once) * sum(map(bool, mask[:2]))


def _inner_flops(left: Any, *_: Any, **__: Any) -> int:
    return 2 * int(math.prod(left.shape))


# Formulas that torch's table lacks or gets wrong; looked up first.
FORMULAS: dict[Any, Callable[..., int]] = {
    aten.convolution_backward: _conv_backward_flops,
    aten._scaled_dot_product_flash_attention_for_cpu: flop_counter.sdpa_flop,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: flop_counter.sdpa_backward_flop,
    aten._scaled_dot_product_fused_attention_overrideable: flop_counter.sdpa_flop,
    aten._scaled_dot_product_fused_attention_overrideable_backward: (
        flop_counter.sdpa_backward_flop
    ),
    aten.mv: _inner_flops,
    aten.dot: _inner_flops,
    aten.vdot: _inner_flops,
    aten.addmv: lambda bias, left, *_, **__: _inner_flops(left),
}


def flops(node: Node) -> int | None:
    """FLOPs of a node, or None if there is no formula."""
    called = packet(node)
    formula = FORMULAS.get(called) or flop_counter.flop_registry.get(called)
    if formula is None:
        return None
    with outside_fakes():
        args, kwargs = values_given(node, _plain)
        return int(formula(*args, **kwargs, out_val=pytree.tree_map(_plain, node.meta["val"])))


def _plain(arg: Any) -> Any:
    """A value without symbols: a stand-in of the hinted sizes for a tensor that has some.

    The formulas compare sizes, and to compare symbols would add guards to the compiled graph.
    """
    if isinstance(arg, torch.SymInt):
        return hint(arg)
    if isinstance(arg, torch.Tensor) and is_symbolic(arg):
        return torch.empty([hint(s) for s in arg.shape], dtype=arg.dtype, device="meta")
    return arg


# ---------------------------------------------------------------------------------------- bytes

# Ops whose first input gives only its sizes, or is written over.
UNREAD = frozenset(
    {
        *(aten.full_like, aten.zeros_like, aten.ones_like, aten.empty_like, aten.rand_like),
        *(aten.randn_like, aten.new_zeros, aten.new_ones, aten.new_full, aten.new_empty),
        *(aten.new_empty_strided, aten.copy_, aten.fill_, aten.zero_),
    }
)
# Ops that read of their first input only what they return.
PICKS = frozenset({aten.embedding, aten.gather, aten.index, aten._unsafe_index, aten.index_select})
UNWRITTEN = frozenset(
    {aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided}
)


def bytes_read(node: Node) -> int:
    """Bytes of the inputs: each part of a storage once, an expanded dimension once."""
    called, total = packet(node), 0
    seen: set[tuple[int, int, int]] = set()
    for index, tensor in enumerate(tensors_read(node)):
        size = _distinct_bytes(tensor)
        try:
            place = storage_key(tensor), hint(tensor.storage_offset()), size
        except NotImplementedError:  # no storage
            place = id(tensor), 0, size
        if place in seen or (index == 0 and called in UNREAD):
            continue
        seen.add(place)
        if index == 0 and called in PICKS:
            size = min(size, bytes_written(node))
        total += size
    return total


def bytes_written(node: Node) -> int:
    """Bytes of the outputs; of those that an op leaves uninitialised, none."""
    if packet(node) in UNWRITTEN:
        return 0
    return sum(_distinct_bytes(t) for t in tensors_in(node.meta.get("val")))


def _distinct_bytes(tensor: torch.Tensor) -> int:
    """Bytes of the elements that a tensor has in memory."""
    if tensor.layout is not torch.strided:
        return hint(tensor.numel()) * tensor.itemsize
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    sizes = (hint(size) for size, stride in pairs if hint(size) == 0 or hint(stride) != 0)
    return math.prod(sizes) * tensor.itemsize
