"""What one run of a graph node costs: FLOPs, bytes moved, seconds.

Nodes are those of ATen graphs; their ``meta["val"]`` hold fake tensors. Seconds follow the
roofline model (Williams, Waterman, Patterson 2009): the larger of arithmetic and traffic time,
plus the time of a launch. Random numbers are a third ceiling, on CPUs the lowest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch.fx import Node
from torch.types import py_sym_types

from fxremat.base.errors import CostError
from fxremat.costs import counts
from fxremat.costs.devices import DeviceProfile
from fxremat.costs.tensor_meta import hint, is_view, signature, tensors_read
from passes.analysis.effects import draws
from passes.node_utils import tensors_in

__all__ = ["CostModel", "NodeCost"]

Kind = Literal["roofline", "measured"] | Callable[[Node], float]


@dataclass(frozen=True, slots=True)
class NodeCost:
    """Cost of one run of a node.

    Attributes:
        flops: floating-point operations; a multiply-add counts as two. 0 for ops without a formula.
        bytes_moved: bytes read and written.
        seconds: predicted time.
    """

    flops: int
    bytes_moved: int
    seconds: float


FREE = NodeCost(0, 0, 0.0)


@dataclass(frozen=True)
class CostModel:
    """Costs of nodes on one device; equal nodes are costed once.

    Attributes:
        profile: figures of the device.
        kind: where seconds come from: "roofline"; "measured", which is ``timings`` with the
            roofline for what is not in there; or a function of the node.
        timings: seconds by signature (``fxremat.costs.workspace.timings``).
    """

    profile: DeviceProfile
    kind: Kind = "roofline"
    timings: Mapping[str, float] = field(default_factory=dict, repr=False)
    _known: dict[str, NodeCost] = field(default_factory=dict, init=False, repr=False, compare=False)

    def cost(self, node: Node) -> NodeCost:
        """Cost of one run of ``node``; views, items of tuples and symbols cost nothing.

        Raises:
            CostError: if the caller's function gives no time, or a tensor has no storage.
        """
        if is_free(node):
            return FREE
        found = self._roofline(node)
        if not isinstance(self.kind, str):
            return replace(found, seconds=_checked(self.kind(node), node))
        return found

    def _roofline(self, node: Node) -> NodeCost:
        # Only ATen ops are told by their signature: two graphs may call different things "body".
        if not isinstance(node.target, torch._ops.OpOverload):
            return _costed(node, self.profile)
        key = signature(node)
        found = self._known.get(key)
        if found is None:
            found = _costed(node, self.profile)
            if self.kind == "measured" and key in self.timings:
                found = replace(found, seconds=self.timings[key])
            self._known[key] = found
        return found


def is_free(node: Node) -> bool:
    """Whether a node does no work on a device: inputs, views, items of tuples, symbols."""
    if node.op != "call_function" or is_view(node):
        return True
    return isinstance(node.meta.get("val"), (int, float, *py_sym_types))


def _checked(seconds: Any, node: Node) -> float:
    if isinstance(seconds, (int, float)) and math.isfinite(seconds) and seconds >= 0:
        return float(seconds)
    raise CostError(
        f"{node.name}: the cost function returned {seconds!r}; it must give seconds, a finite "
        "number that is not negative"
    )


def _costed(node: Node, profile: DeviceProfile) -> NodeCost:
    try:
        count = counts.flops(node) or 0
        moved = counts.bytes_read(node) + counts.bytes_written(node)
    except CostError as error:
        text = str(error)
        raise CostError(text if text.startswith(node.name) else f"{node.name}: {text}") from error
    busy = max(count / profile.rate(_dtype(node)), moved / profile.bandwidth)
    if profile.draws is not None and draws(node):
        busy = max(busy, _drawn(node) / profile.draws)
    return NodeCost(count, moved, busy + profile.launch)


def _drawn(node: Node) -> int:
    """Random numbers that an op draws: one for each element of its first result."""
    made = tensors_in(node.meta.get("val"))
    return hint(made[0].numel()) if made else 0


def _dtype(node: Node) -> torch.dtype:
    """The dtype an op computes in: that of its first floating input, else of its output."""
    tensors = (*tensors_read(node), *tensors_in(node.meta.get("val")))
    found = (t.dtype for t in tensors if t.dtype.is_floating_point)
    return next(found, torch.float32)
