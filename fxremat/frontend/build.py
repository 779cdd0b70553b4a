"""From a joint graph to a problem: costs and rules applied, views gone, names kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import fx

from fxremat.constraints.rules import FIXED, VOUCHED, fixed, unsaveable
from fxremat.constraints.user import Pins
from fxremat.problem.fused_values import FUSED
from fxremat.problem.types import Kind, Op, Phase, Problem, Value
from passes.analysis.joint import JointGraph, Role
from passes.recompute.forms import rerun_reads

__all__ = ["Sizing", "formulate"]

Fused = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Sizing:
    """What ops and values of a graph cost, as functions of the node.

    Attributes:
        seconds: time of one run of an op.
        flops: floating-point operations of one run of an op.
        storage: bytes that the allocator hands out for the storage of a traced tensor.
        workspace: bytes that an op holds while it runs beyond its inputs and outputs.
    """

    seconds: Callable[[fx.Node], float]
    flops: Callable[[fx.Node], int]
    storage: Callable[[torch.Tensor], int]
    workspace: Callable[[fx.Node], int]


def formulate(
    joint: JointGraph, sizing: Sizing, pins: Pins | None = None, fused: Fused | None = None
) -> Problem:
    """Make the problem of a joint graph.

    Args:
        joint: the joint graph.
        sizing: costs of its ops and values.
        pins: what the user wants saved or recomputed.
        fused: values that take no memory, and what is read in their place
            (:mod:`fxremat.frontend.fusion`).

    Raises:
        CostError: if a tensor has no storage.
    """
    pins, fused = pins or Pins(), fused or {}
    values, index = _values(joint, sizing, pins, fused)
    ops: list[Op] = []
    forward: list[int] = []
    backward: list[int] = []
    deferrable: list[int] = []
    order = {Phase.FORWARD: forward, Phase.DEFERRABLE: deferrable, Phase.BACKWARD: backward}
    order[Phase.REPLAY_SUPPORT] = forward  # they stand right before the ops that they serve
    for node in joint.nodes:
        role, phase = joint.roles[node.name], joint.phases[node.name]
        if role is Role.OP:
            order[phase].append(len(ops))
            ops.append(_op(joint, node, sizing, index, pins, fused))
        elif role is Role.OUTPUT:
            backward.append(len(ops))
            ops.append(_exit(joint, sizing, index))
    placed = _place(ops, forward, deferrable)
    return Problem(tuple(values), tuple(ops), tuple(placed), tuple(backward))


def _values(
    joint: JointGraph, sizing: Sizing, pins: Pins, fused: Fused
) -> tuple[list[Value], dict[str, int]]:
    values: list[Value] = []
    index: dict[str, int] = {}
    held = {joint.storages.get(n.name) for n in joint.outputs()[0]}
    kinds = {Role.INPUT: Kind.INPUT, Role.TANGENT: Kind.TANGENT}
    for node in joint.nodes:
        if joint.storages.get(node.name) != node.name:
            continue
        kind = kinds.get(joint.roles[node.name], Kind.COMPUTED)
        index[node.name] = len(values)
        if node.name in fused:
            values.append(Value(node.name, 0, unsaveable=FUSED))
            continue
        values.append(
            Value(
                name=node.name,
                nbytes=0 if kind is Kind.INPUT else sizing.storage(node.meta["val"]),
                kind=kind,
                is_output=kind is Kind.COMPUTED and node.name in held,
                unsaveable=_unsaveable(joint, node, pins) if kind is Kind.COMPUTED else "",
            )
        )
    return values, index


def _unsaveable(joint: JointGraph, node: fx.Node, pins: Pins) -> str:
    return unsaveable(joint, node) or pins.recomputed.get(node.name, "")


def _fixed(joint: JointGraph, node: fx.Node, pins: Pins) -> str:
    rules = VOUCHED if node.name in pins.vouched else FIXED
    return fixed(joint, node, rules) or pins.saved.get(node.name, "")


def _op(
    joint: JointGraph,
    node: fx.Node,
    sizing: Sizing,
    index: dict[str, int],
    pins: Pins,
    fused: Fused,
) -> Op:
    spare = sum(sizing.storage(t) for t in joint.spare.get(node.name, ()))
    support = joint.phases[node.name] is Phase.REPLAY_SUPPORT
    first = joint.phases[node.name] in (Phase.FORWARD, Phase.REPLAY_SUPPORT)
    inputs = joint.reads(node) if first else joint.reads_late(node)
    return Op(
        name=node.name,
        inputs=tuple(index[s] for s in dict.fromkeys(_with_sources(inputs, fused))),
        outputs=tuple(index[s] for s in joint.makes(node)),
        seconds=sizing.seconds(node),
        flops=sizing.flops(node),
        workspace=0 if support else spare + sizing.workspace(node),
        phase=joint.phases[node.name],
        fixed=_fixed(joint, node, pins),
        replay_inputs=tuple(index[s] for s in _again(joint, node)),
        replay_workspace=_held_meanwhile(joint, node, sizing),
    )


def _with_sources(inputs: Iterable[str], fused: Fused) -> Iterator[str]:
    """What an op reads, and behind each value that takes no memory what is read in its place."""
    for name in inputs:
        yield name
        yield from fused.get(name, ())


def _held_meanwhile(joint: JointGraph, node: fx.Node, sizing: Sizing) -> int:
    """A replay holds the generator's present state while it runs, to put it back."""
    state = joint.states.get(node.name)
    return 0 if state is None else sizing.storage(joint.named[state].meta["val"])


def _again(joint: JointGraph, node: fx.Node) -> list[str]:
    """Storages that a further run of a forward op reads beyond what the first one does."""
    if joint.phases[node.name] is not Phase.FORWARD:
        return []
    mine = joint.reads(node)
    return [name for name in rerun_reads(joint, node) if name not in mine]


def _exit(joint: JointGraph, sizing: Sizing, index: dict[str, int]) -> Op:
    """The end of the backward: all gradients are live, and autograd may copy one at a time.

    ``AccumulateGrad`` keeps a gradient as it is only if its layout is the parameter's; otherwise
    it clones it, after the backward has returned all of them.
    """
    returned = joint.outputs()[1]
    names = [joint.storages[n.name] for n in returned if n.name in joint.storages]
    stored = dict.fromkeys(joint.copies.get(name, name) for name in names)
    copied = [
        sizing.storage(n.meta["val"].new_empty(n.meta["val"].shape))  # an expanded one in full
        for n in returned
        if n.name in joint.storages and not _keeps_layout(joint, n)
    ]
    return Op(
        name="output",
        inputs=tuple(index[s] for s in stored),
        outputs=(),
        seconds=0.0,
        workspace=max(copied, default=0),
        phase=Phase.BACKWARD,
    )


def _keeps_layout(joint: JointGraph, node: fx.Node) -> bool:
    value = node.meta["val"]
    return isinstance(value, torch.Tensor) and value.is_contiguous()


def _place(ops: list[Op], forward: list[int], deferrable: list[int]) -> list[int]:
    """Put each DEFERRABLE op after the op that makes its last input; without one, at the end."""
    position = {v: p for p, o in enumerate(forward) for v in ops[o].outputs}
    follow: dict[int, list[int]] = {}
    for index in deferrable:
        last = max((position[v] for v in ops[index].inputs if v in position), default=-1)
        at = last if last >= 0 else len(forward) - 1
        follow.setdefault(at, []).append(index)
        position.update(dict.fromkeys(ops[index].outputs, at))
    placed: list[int] = list(follow.get(-1, ()))
    for p, o in enumerate(forward):
        placed += [o, *follow.get(p, ())]
    return placed
