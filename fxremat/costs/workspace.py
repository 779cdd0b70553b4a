"""Bytes that an op holds while it runs, beyond its inputs and outputs: measured, not guessed.

Convolutions reorder their operands, reductions copy a gradient that is not contiguous, and so on;
no formula tells how much. So every distinct op of a graph is run once on real tensors of the same
sizes, strides and offsets, and the allocator is asked (``fxremat.costs.op_profiler``). Results are
kept in the cache folder, per torch version, device name and thread count.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import torch
from torch.fx import Node

from fxremat.base import cache
from fxremat.base.errors import CostError
from fxremat.costs import op_profiler
from fxremat.costs.model import is_free
from fxremat.costs.op_profiler import Measurement
from fxremat.costs.tensor_meta import hint, signature, storage_bytes, tensors_read
from passes.analysis.effects import OWN, communicates
from passes.node_utils import packet, tensors_in
from passes.torch_internals import storage_key

__all__ = ["Measurement", "estimate", "excess", "measure", "timings"]

FORMAT = 1
LIMIT = 2 << 30  # bytes of inputs and outputs; ops beyond are not run
aten = torch.ops.aten
CONVOLUTIONS = frozenset(
    {aten.convolution, aten.convolution_backward, aten._convolution, aten.cudnn_convolution}
)
# These resize their unreduced result to a scalar, on every device, and resizing frees nothing.
# What these hold depends on the values of their inputs: how often rows are swapped, what is chosen.
BY_VALUES = frozenset(
    {aten.linalg_lu, aten.linalg_lu_factor, aten.linalg_lu_factor_ex, aten.lu_unpack}
    | {aten.linalg_lu_solve, aten.masked_scatter, aten.masked_select, aten.nonzero}
)
LOSSES = frozenset(
    {aten.mse_loss, aten.smooth_l1_loss, aten.soft_margin_loss, aten.binary_cross_entropy}
)


def measure(
    nodes: Iterable[Node], device: torch.device | str, *, timed: bool = False
) -> dict[str, Measurement]:
    """Measure every distinct op among ``nodes``, or read what an earlier run measured.

    Ops that write into their inputs, communicate, live on another device, need more than 2 GiB, or
    fail on the inputs made up for them are estimated; so is every op where ``device`` is not on
    this machine or a profiler is already running.

    Args:
        nodes: of an ATen graph with fake values; those that cost nothing are passed over.
        device: where to run.
        timed: time each op as well.

    Returns:
        A measurement for each ``fxremat.costs.tensor_meta.signature``.

    Raises:
        CostError: if a tensor has no storage.
    """
    device = torch.device(device)
    distinct = {signature(n): n for n in nodes if not is_free(n)}
    if not _present(device):
        return estimate(distinct.values())
    name = f"workspace {cache.machine(device)}"
    kept = _entries(cache.load(name))
    found = {key: _parse(kept.get(_digest(key)), timed) for key in distinct}
    todo = {k: n for k, n in distinct.items() if found[k] is None and _runnable(n, device)}
    seen = op_profiler.run_all(todo, device, timed=timed) if todo else {}
    if seen:
        new = {_digest(k): [m.workspace, m.seconds, m.out_bytes] for k, m in seen.items()}
        cache.update(name, lambda data: {"format": FORMAT, "ops": _entries(data) | new})
    return {k: _judged(n, seen.get(k) or found[k]) for k, n in distinct.items()}


def _judged(node: Node, seen: Measurement | None) -> Measurement:
    """What was measured, or else an estimate; both say whether they can be trusted."""
    if seen is None:
        return replace(_estimate(node), known=_writes(node))  # what only writes holds nothing
    return replace(seen, known=packet(node) not in BY_VALUES)


def _writes(node: Node) -> bool:
    own = isinstance(node.target, torch._ops.OpOverload) and node.target.namespace in OWN
    return own and node.target._schema.is_mutable  # type: ignore[union-attr]


def estimate(nodes: Iterable[Node]) -> dict[str, Measurement]:
    """What every distinct op among ``nodes`` is estimated to hold, without running any."""
    return {signature(n): _estimate(n) for n in nodes if not is_free(n)}


def excess(nodes: Iterable[Node], found: Mapping[str, Measurement]) -> dict[int, int]:
    """Bytes by which storages that ops return exceed the traced ones.

    ``mse_loss`` with a mean, for one, returns a scalar in the storage of what it was taken over.

    Args:
        nodes: of an ATen graph with fake values.
        found: measurements by signature, as from :func:`measure` or :func:`estimate`.

    Returns:
        Bytes by the key of a fake tensor's storage, for those that are larger than traced.
    """
    more = {}
    for node in nodes:
        seen = found.get(signature(node)) if "val" in node.meta else None
        if seen is None or not seen.out_bytes:
            continue
        made = {storage_key(t): storage_bytes(t) for t in tensors_in(node.meta["val"])}
        if len(seen.out_bytes) != len(made):
            continue
        for (key, traced), real in zip(made.items(), seen.out_bytes, strict=True):
            if real > traced:
                more[key] = real - traced
    return more


def timings(found: Mapping[str, Measurement]) -> dict[str, float]:
    """Seconds by signature of what was timed, as ``fxremat.costs.model.CostModel`` takes them."""
    return {key: m.seconds for key, m in found.items() if m.seconds is not None}


# --------------------------------------------------------------------------------- what to run


def _present(device: torch.device) -> bool:
    """Whether ops can be measured on ``device`` here and now."""
    if device.type == "cuda":
        return torch.cuda.is_available()
    profiling = torch.autograd._profiler_enabled()  # type: ignore[attr-defined]
    return device.type == "cpu" and not profiling


def _runnable(node: Node, device: torch.device) -> bool:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or communicates(node):
        return False
    if target._schema.is_mutable or any(a.alias_info for a in target._schema.returns):
        return False
    tensors = [*tensors_read(node), *tensors_in(node.meta.get("val"))]
    if any(t.layout is not torch.strided or t.device.type != device.type for t in tensors):
        return False
    if any("val" not in n.meta for n in node.all_input_nodes):
        return False
    try:
        return sum(storage_bytes(t) for t in tensors) <= LIMIT
    except CostError:  # an output whose size depends on data
        return False


def _estimate(node: Node) -> Measurement:
    """A convolution is taken to reorder each of its inputs and outputs into one copy."""
    if packet(node) in LOSSES:
        return Measurement(0, out_bytes=_loss_bytes(node))
    if packet(node) not in CONVOLUTIONS:
        return Measurement(0)
    tensors = [*tensors_read(node), *tensors_in(node.meta.get("val"))]
    return Measurement(sum(storage_bytes(t) for t in tensors))


def _loss_bytes(node: Node) -> tuple[int, ...]:
    """What a loss returns: without a reduction as traced, else a storage of the unreduced size."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dim() > 0:
        return ()
    shape = torch.broadcast_shapes(*(t.shape for t in tensors_read(node)))
    return (max(hint(math.prod(shape)), 1) * value.element_size(),)


# ---------------------------------------------------------------------------------------- cache


def _digest(key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=16).hexdigest()


Entry = tuple[int, float | None, tuple[int, ...]]  # fields of a Measurement, in order


def _entries(data: dict[str, Any] | None) -> dict[str, Any]:
    if data is None or data.get("format") != FORMAT:
        return {}
    ops = data.get("ops")
    return ops if isinstance(ops, dict) else {}


def _parse(entry: Any, timed: bool) -> Measurement | None:
    try:
        known = Measurement(*msgspec.convert(entry, Entry))
    except msgspec.ValidationError:
        return None
    return None if timed and known.seconds is None else known
