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

from dataclasses import dataclass, field

import torch
from torch import fx

from passes.analysis.effects import draws, generator, is_custom
from passes.analysis.joint import JointGraph, Role
from passes.node_utils import leaves, mutated_arguments, tensors_in
from passes.phases import Phase
from passes.torch_internals import OpOverload

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


@dataclass
class _Insertion:
    states: dict[str, str] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)

    def state(self, node: fx.Node, device: torch.device) -> None:
        """Take the generator's state right before a node."""
        graph = node.graph
        with graph.inserting_before(node):
            new = graph.create_node(
                "call_function",
                torch.ops.fxremat.rng_state.default,
                (device, len(self.states)),
                {},
                f"{node.name}_rng",
            )
        like = tensors_in(node.meta["val"])[0]
        new.meta["val"] = like.new_empty(_state_bytes(device), dtype=torch.uint8, device="cpu")
        self.states[node.name] = new.name

    def copy(self, source: fx.Node, before: fx.Node) -> None:
        """Copy an input right before a node."""
        graph = source.graph
        with graph.inserting_before(before):
            new = graph.create_node(
                "call_function", aten.clone.default, (source,), {}, f"{source.name}_kept"
            )
        new.meta["val"] = source.meta["val"].clone()
        self.copies[source.name] = new.name


def with_replay_support(joint: JointGraph, *, replay: bool) -> JointGraph:
    """A joint graph with ops that let others run again; its module is changed in place.

    Args:
        joint: the joint graph.
        replay: whether random ops may be replayed; Inductor has its own way of doing so.
    """
    made = _Insertion()
    for node in joint.nodes if replay else ():
        device = _replayable(joint, node)
        if device is not None:
            made.state(node, device)
    for source, before in _overwritten(joint):
        made.copy(source, before)
    if not made.states and not made.copies:
        return joint
    return JointGraph.from_module(
        joint.module, joint.num_fwd_outputs, states=made.states, copies=made.copies
    )


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def _replayable(joint: JointGraph, node: fx.Node) -> torch.device | None:
    """The device on which a node of the forward draws, if the draw can be replayed."""
    if joint.roles[node.name] is not Role.OP or joint.phases[node.name] is not Phase.FORWARD:
        return None
    if not (draws(node) or is_custom(node)) or generator(node) is not None:
        return None
    if not _read_in_forward(joint, node):
        return None  # the forward draws for the backward alone: what it draws is saved
    assert isinstance(node.target, OpOverload)  # draws() and is_custom() say no to others
    if node.target._schema.is_mutable:
        return None
    direct = any(isinstance(a, fx.Node) and _is_tensor(a.meta.get("val")) for a in node.args)
    if not direct and "device" not in node.kwargs:
        return None  # run_with_rng_state could not tell whose generator is meant
    tensors = tensors_in(node.meta["val"])
    devices = {t.device for t in tensors}
    devices |= {a.meta["val"].device for a in leaves(node) if _is_tensor(a.meta.get("val"))}
    if not tensors or len(devices) != 1:
        return None
    (device,) = devices
    if device.type == "cuda":
        return device if device.index in (None, torch.cuda.current_device()) else None
    return device if device.type == "cpu" else None


def _read_in_forward(joint: JointGraph, node: fx.Node) -> bool:
    stack, seen = [node], {node}
    forward = {n.name for n in joint.outputs()[0]}
    while stack:
        at = stack.pop()
        if at.name in forward:
            return True
        for user in at.users:
            if joint.roles[user.name] in (Role.VIEW, Role.ITEM):
                if user not in seen:
                    seen.add(user)
                    stack.append(user)
            elif joint.phases[user.name] is Phase.FORWARD:
                return True
    return False


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
