"""Which values Inductor's fusion keeps out of memory, told from the graph before it is compiled.

Inductor computes an elementwise op inside the kernels that read its result, if those are
elementwise or reductions themselves. Such a value never takes memory; what it is computed from is
read, and lives, in its place. What is really fused is known only after compiling, and the peak of
the code is what counts in the end (:mod:`fxremat.backends.inductor`), but a plan is only as good as
what the solver is told. The rules are those that hold in nearly all graphs:

* A value counts as fused if all its readers fuse and it is a function of one large value (small
  ones and inputs of the step do not count) that is no larger than itself. Where Inductor
  materializes it after all, it takes the place of its source, so memory does not grow.
* In the backward it may be a function of several large values, if one op alone reads it.

Forward values that the backward reads are excluded: they may be worth saving.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import torch
from torch import fx
from torch._ops import OpOverload

from fxremat.constraints.rules import fixed
from passes.analysis.effects import draws
from passes.analysis.joint import JointGraph, Role
from passes.phases import Phase

__all__ = ["SHARE", "fused_values"]

SHARE = 1 / 8  # of its time is what a fused op takes: it has neither a launch nor traffic
SMALL = 8  # a value of less than 1/8 of another's bytes, such as a mean of rows, is small beside it
aten = torch.ops.aten
LOOKUPS = frozenset({aten.gather, aten.index, aten._unsafe_index})  # they compute what they read
Storage = Callable[[torch.Tensor], int]


def fused_values(
    joint: JointGraph, storage: Storage, materialized: Collection[str] = ()
) -> dict[str, tuple[str, ...]]:
    """Values that take no memory once Inductor has fused the ops that read them.

    Args:
        joint: the joint graph, with Inductor's decompositions.
        storage: bytes of a traced tensor's storage.
        materialized: names of values that are known to take memory.

    Returns:
        For each such value, by name, the storages that are read in its place.
    """
    readers: dict[str, list[fx.Node]] = {}
    for node in joint.nodes:
        if joint.roles[node.name] in (Role.OP, Role.OUTPUT):
            for name in joint.reads(node):
                readers.setdefault(name, []).append(node)
    found: dict[str, tuple[str, ...]] = {}
    for node in joint.nodes:
        if node.name in materialized or not _elementwise(joint, node):
            continue
        reads = (s for name in joint.reads(node) for s in found.get(name, (name,)))
        sources = tuple(dict.fromkeys(reads))
        given = readers.get(node.name, [])
        if not _readable(joint, node, sources, given):
            continue
        if _takes_no_memory(joint, node, sources, given, storage):
            found[node.name] = sources
    return found


def _elementwise(joint: JointGraph, node: fx.Node) -> bool:
    """Whether a node is an op that computes one tensor element by element, and may do so again."""
    if joint.roles[node.name] is not Role.OP or joint.storages.get(node.name) != node.name:
        return False
    return _fuses(node, torch.Tag.pointwise) and not fixed(joint, node)


def _fuses(node: fx.Node, *tags: torch.Tag) -> bool:
    """Whether Inductor makes a loop of an op that has one of these tags."""
    from passes.inductor import is_external

    target = node.target
    if not isinstance(target, OpOverload) or target._schema.is_mutable:
        return False
    return any(tag in target.tags for tag in tags) and not draws(node) and not is_external(node)


def _inlines(node: fx.Node) -> bool:
    """Whether an op computes what it reads within its own loop."""
    packet = getattr(node.target, "overloadpacket", None)
    return packet in LOOKUPS or _fuses(node, torch.Tag.pointwise, torch.Tag.reduction)


def _readable(
    joint: JointGraph, node: fx.Node, sources: Sequence[str], readers: Sequence[fx.Node]
) -> bool:
    """Whether all that read a value can compute it themselves, at the same time of the step."""
    if not readers or not all(map(_inlines, readers)):
        return False
    if not joint.written.isdisjoint((node.name, *sources)):
        return False
    sides = {joint.phases[reader.name] for reader in readers}
    return joint.phases[node.name] is not Phase.FORWARD or sides == {Phase.FORWARD}


def _takes_no_memory(
    joint: JointGraph,
    node: fx.Node,
    sources: Sequence[str],
    readers: Sequence[fx.Node],
    storage: Storage,
) -> bool:
    """Whether keeping what a value is made of, in its place, costs no memory."""
    size = storage(node.meta["val"])
    made = (s for s in sources if s in joint.computed)
    sizes = (storage(joint.named[s].meta["val"]) for s in made)
    large = [source for source in sizes if source * SMALL > size]
    if len(large) > 1:
        return joint.phases[node.name] is Phase.BACKWARD and len(readers) == 1
    return all(source <= size for source in large)
