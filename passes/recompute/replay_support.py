"""Ops that the forward runs, where a plan asks for it, so that others may run again.

* A random op draws the same numbers again if the generator is put back to where it stood. Its
  state is taken right before the draw, and the further run goes through
  ``run_with_rng_state``, which leaves the generator as it finds it. A custom op may draw without
  saying so, and is treated alike.
* An op that reads an input which the forward overwrites can run again on a copy of the input,
  taken before the first read. So can an op of the backward that reads such an input.

Nothing of this runs unless the plan saves its result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from passes.analysis.effects import draws, generator, is_custom
from passes.analysis.joint import JointGraph, Role
from passes.node_utils import leaves, mutated_arguments, tensors_in
from passes.phases import Phase
from passes.torch_internals import copied

__all__ = ["rng_state", "with_replay_support"]

aten = torch.ops.aten


@torch.library.custom_op("fxremat::rng_state", mutates_args=())
def rng_state(device: torch.device, index: int) -> torch.Tensor:
    """The state of a device's default generator: a CPU tensor of bytes.

    Args:
        device: the device whose generator is meant.
        index: a number of its own for each call, so that no two are taken to be the same.
    """
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


@rng_state.register_fake
def _(device: torch.device, index: int) -> torch.Tensor:
    return torch.empty(_state_bytes(device), dtype=torch.uint8, device="cpu")


def _state_bytes(device: torch.device) -> int:
    return 16 if device.type == "cuda" else torch.get_rng_state().numel()


def with_replay_support(joint: JointGraph, *, replay: bool) -> JointGraph:
    """A joint graph with ops that let others run again; the one given is left as it is.

    Args:
        joint: the joint graph.
        replay: whether random ops may be replayed; Inductor has its own way of doing so.
    """
    drawing = list(_replayable(joint)) if replay else []
    overwritten = _overwritten(joint)
    if not drawing and not overwritten:
        return joint
    module = copied(joint.module)
    named = {n.name: n for n in module.graph.nodes}
    states, copies = {}, {}
    for index, (node, device) in enumerate(drawing):
        like = tensors_in(node.meta["val"])[0]
        state = like.new_empty(_state_bytes(device), dtype=torch.uint8, device="cpu")
        target = torch.ops.fxremat.rng_state.default
        call = _insert(named[node.name], f"{node.name}_rng", target, (device, index), state)
        states[node.name] = call.name
    for source, reader in overwritten:
        value, args = source.meta["val"].clone(), (named[source.name],)
        name = f"{source.name}_kept"
        call = _insert(named[reader.name], name, aten.clone.default, args, value)
        copies[source.name] = call.name
    return joint.with_support(module, states, copies)


def _insert(before: fx.Node, name: str, target: Any, args: tuple[Any, ...], value: Any) -> fx.Node:
    with before.graph.inserting_before(before):
        new = before.graph.create_node("call_function", target, args, name=name)
    new.meta["val"] = value
    return new


def _replayable(joint: JointGraph) -> Iterator[tuple[fx.Node, torch.device]]:
    """Ops of the forward that draw and whose draw can be replayed, each with its device."""
    for node in joint.nodes:
        if joint.roles[node.name] is not Role.OP or joint.phases[node.name] is not Phase.FORWARD:
            continue
        if not (draws(node) or is_custom(node)) or generator(node) is not None:
            continue
        if not _read_in_forward(joint, node):
            continue  # the forward draws for the backward alone: what it draws is saved
        assert isinstance(node.target, OpOverload)  # draws() and is_custom() say no to others
        if not node.target._schema.is_mutable and (device := _device(node)) is not None:
            yield node, device


def _device(node: fx.Node) -> torch.device | None:
    """The device whose default generator a node draws from, if it can be told."""
    given = [a.meta["val"] for a in leaves(node) if _is_tensor(a)]
    direct = any(isinstance(a, fx.Node) and _is_tensor(a) for a in node.args)
    if not direct and "device" not in node.kwargs:
        return None  # run_with_rng_state could not tell whose generator is meant
    made = tensors_in(node.meta["val"])
    devices = {t.device for t in (*made, *given)}
    if not made or len(devices) != 1:
        return None
    (device,) = devices
    if device.type == "cuda":
        return device if device.index in (None, torch.cuda.current_device()) else None
    return device if device.type == "cpu" else None


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _read_in_forward(joint: JointGraph, node: fx.Node) -> bool:
    looks = set(joint.looks(node))
    readers = {user for at in looks for user in at.users} - looks
    if any(joint.phases[reader.name] is Phase.FORWARD for reader in readers):
        return True
    return not looks.isdisjoint(joint.outputs()[0])


def _overwritten(joint: JointGraph) -> list[tuple[fx.Node, fx.Node]]:
    """Inputs that the forward overwrites once all reads are done, and what first reads each."""
    place = {n: i for i, n in enumerate(joint.nodes)}
    found = []
    for source in joint.module.graph.find_nodes(op="placeholder"):
        if source.name not in joint.written or joint.storages.get(source.name) != source.name:
            continue
        touching = [n for n in joint.nodes if joint.storages.get(n.name) == source.name]
        users = [u for n in touching for u in n.users if u.op != "output"]
        writes = [u for u in users if any(a in touching for a in mutated_arguments(u))]
        reads = [u for u in users if u not in writes and joint.phases[u.name] is not Phase.BACKWARD]
        late = [u for n in touching for u in n.users if joint.phases[u.name] is Phase.BACKWARD]
        plain = all(w.target is aten.copy_.default and w.args[0] is source for w in writes)
        plain = plain and all(joint.phases[w.name] is Phase.FORWARD for w in writes)
        first_write = min(place[w] for w in writes)
        if plain and (reads or late) and all(place[r] < first_write for r in reads):
            found.append((source, min((*reads, *writes), key=place.__getitem__)))
    return found
