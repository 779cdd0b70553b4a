"""From a joint graph to a problem, and where its ops come from.

Costs and rules are applied, views are gone, names are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath

import torch
from torch import fx

from fxremat.constraints.rules import fixed, unsaveable
from fxremat.constraints.user import Pins, module_path
from fxremat.problem.context import Origin
from fxremat.problem.types import FUSED, Kind, Op, Phase, Problem, Value
from passes.analysis.joint import JointGraph, Role
from passes.node_utils import leaves
from passes.printer import target_text, type_text
from passes.recompute.forms import rerun_reads

__all__ = ["Sizing", "formulate", "origins_of"]

_FRAME = re.compile(r'File "([^"]+)", line (\d+)[^\n]*(?:\n\s*([^\n]+))?')
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
    for node in joint.nodes:
        if joint.roles[node.name] is Role.OP:
            ops.append(_op(joint, node, sizing, index, pins, fused))
        elif joint.roles[node.name] is Role.OUTPUT:
            ops.append(_exit(joint, sizing, index))
    backward = tuple(i for i, op in enumerate(ops) if op.phase is Phase.BACKWARD)
    return Problem(tuple(values), tuple(ops), tuple(_forward(ops)), backward)


def _values(
    joint: JointGraph, sizing: Sizing, pins: Pins, fused: Fused
) -> tuple[list[Value], dict[str, int]]:
    values: list[Value] = []
    index: dict[str, int] = {}
    returned = joint.storages_of(joint.outputs()[0])
    kinds = {Role.INPUT: Kind.INPUT, Role.TANGENT: Kind.TANGENT}
    for node in joint.nodes:
        if joint.storages.get(node.name) != node.name:
            continue
        kind = kinds.get(joint.roles[node.name], Kind.COMPUTED)
        nbytes = 0 if kind is Kind.INPUT else sizing.storage(node.meta["val"])
        index[node.name] = len(values)
        if node.name in fused:
            values.append(Value(node.name, 0, unsaveable=FUSED, fused=True))
        elif kind is not Kind.COMPUTED:
            values.append(Value(node.name, nbytes, kind))
        else:
            why = unsaveable(joint, node) or pins.recomputed.get(node.name, "")
            values.append(Value(node.name, nbytes, kind, node.name in returned, why))
    return values, index


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
    forward = support or joint.phases[node.name] is Phase.FORWARD
    inputs = joint.storages_of(leaves(node), late=not forward)
    state = joint.states.get(node.name)  # a replay holds the present one, to put it back
    return Op(
        name=node.name,
        inputs=tuple(index[s] for s in dict.fromkeys(_with_sources(inputs, fused))),
        outputs=tuple(index[s] for s in joint.makes(node)),
        seconds=sizing.seconds(node),
        flops=sizing.flops(node),
        workspace=0 if support else spare + sizing.workspace(node),
        phase=joint.phases[node.name],
        fixed=fixed(joint, node, pure=node.name in pins.vouched) or pins.saved.get(node.name, ""),
        replay_inputs=tuple(index[s] for s in _again(joint, node)),
        replay_workspace=0 if state is None else sizing.storage(joint.named[state].meta["val"]),
    )


def _with_sources(inputs: Iterable[str], fused: Fused) -> Iterator[str]:
    """What an op reads, and behind each value that takes no memory what is read in its place."""
    for name in inputs:
        yield name
        yield from fused.get(name, ())


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
    copied = [
        sizing.storage(n.meta["val"].new_empty(n.meta["val"].shape))  # an expanded one in full
        for n in returned
        if n.name in joint.storages and not n.meta["val"].is_contiguous()
    ]
    return Op(
        name="output",
        inputs=tuple(index[s] for s in joint.storages_of(returned, late=True)),
        outputs=(),
        seconds=0.0,
        workspace=max(copied, default=0),
        phase=Phase.BACKWARD,
    )


def _forward(ops: list[Op]) -> list[int]:
    """The order of the forward, if all DEFERRABLE ops were hoisted into it.

    Each of them stands after the op that makes its last input; without one, at the end.
    """
    deferrable = [i for i, op in enumerate(ops) if op.phase is Phase.DEFERRABLE]
    support = (Phase.FORWARD, Phase.REPLAY_SUPPORT)  # these stand right before what they serve
    groups = [[i] for i, op in enumerate(ops) if op.phase in support] or [[]]
    position = {v: p for p, group in enumerate(groups) for o in group for v in ops[o].outputs}
    for index in deferrable:
        found = [position[v] for v in ops[index].inputs if v in position]
        at = max(found, default=len(groups) - 1)
        groups[at].append(index)
        position.update(dict.fromkeys(ops[index].outputs, at))
    return [index for group in groups for index in group]


# ------------------------------------------------------------------------- origins


def origins_of(joint: JointGraph) -> dict[str, Origin]:
    """The origin of every op, input, tangent and value of a joint graph, by node name."""
    wanted = (Role.OP, Role.ITEM, Role.INPUT, Role.TANGENT)
    return {n.name: _origin(joint, n) for n in joint.nodes if joint.roles[n.name] in wanted}


def _origin(joint: JointGraph, node: fx.Node) -> Origin:
    role = joint.roles[node.name]
    shape = type_text(node.meta.get("val"))
    if role in (Role.INPUT, Role.TANGENT):
        return Origin(role.value, shape)
    source, code = _line(str(node.meta.get("stack_trace") or ""))
    return Origin(target_text(joint.maker(node)), shape, module_path(node), source, code)


def _line(trace: str) -> tuple[str, str]:
    """File with its folder, number and text of the innermost line of a stack trace."""
    frames = _FRAME.findall(trace)
    if not frames:
        return "", ""
    path, line, code = frames[-1]
    short = "/".join(PurePath(path).parts[-2:])
    return f"{short}:{line}", code.strip()
