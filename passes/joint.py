"""The joint graph: the one door through which graphs enter the pass.

AOTAutograd traces forward and backward of a training step into one graph of ATen ops. A
:class:`JointGraph` is that graph with everything the later stages ask about it settled once:

* the *role* of every node: an input, a tangent, an op that does work, an item taken from an op's
  tuple, a view, a symbolic size, a constant, the output;
* the *side* of every node: ``forward`` (the forward's outputs or effects need it), ``backward``
  (it depends on a tangent, or its effect belongs to the backward), ``either`` (it depends on
  the inputs alone but only the backward reads it), or ``early`` (it serves further runs of
  others, see :mod:`.early`);
* the *storage* of every node: views of one buffer are one storage, named after the node that
  yields the buffer. Identity is taken from the traced fake tensors, so that ops like
  ``_unsafe_view``, whose schema promises a fresh result, are seen for what they do; an op that can
  do nothing but view is a view even where a compiler's own pass traced it apart.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from .effects import communicates, is_custom, keeps_input
from .errors import GraphError
from .private import OpOverload, impure, only_views, storage_key

__all__ = ["JointGraph", "Role", "Side", "check_graph", "leaves", "mutated_arguments", "nodes_in"]


class Role(StrEnum):
    """What a node is to the pass."""

    INPUT = "input"
    TANGENT = "tangent"
    OP = "op"
    ITEM = "item"
    VIEW = "view"
    SIZE = "size"
    CONSTANT = "constant"
    OUTPUT = "output"


class Side(StrEnum):
    """Where a node runs when nothing is recomputed."""

    FORWARD = "forward"
    EARLY = "early"
    EITHER = "either"
    BACKWARD = "backward"


@dataclass(frozen=True)
class JointGraph:
    """A joint graph with roles, sides and storages of its nodes; all mappings go by node name.

    Attributes:
        module: the graph module; not to be changed.
        num_fwd_outputs: how many of its outputs are the forward's.
        roles: the role of every node.
        sides: the side of every node.
        storages: the storage that a node's tensor lives in, by the name of the node that yields
            it; nodes without a tensor of their own (tuples, sizes) are not in it.
        spare: for ops, bytes-carrying tensors of their result that no node takes out.
        written: storages that the graph writes to after they were made.
        states: for ops that can be replayed the node that takes the generator's state before.
        copies: for inputs that the forward overwrites the node that copies them before.
    """

    module: fx.GraphModule
    num_fwd_outputs: int
    roles: dict[str, Role]
    sides: dict[str, Side]
    storages: dict[str, str]
    spare: dict[str, tuple[torch.Tensor, ...]]
    written: frozenset[str]
    states: Mapping[str, str] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_module(
        cls,
        module: fx.GraphModule,
        num_fwd_outputs: int,
        *,
        states: Mapping[str, str] | None = None,
        copies: Mapping[str, str] | None = None,
    ) -> JointGraph:
        """Read a joint graph.

        Args:
            module: the joint graph as AOTAutograd hands it to a partitioner.
            num_fwd_outputs: how many of its outputs belong to the forward.
            states: see the attributes.
            copies: see the attributes.

        Raises:
            GraphError: for a node that is no ATen-level call, lacks its traced value, or for a
                number of outputs that the graph does not have.
        """
        check_graph(module.graph, num_fwd_outputs)
        roles, storages, spare = _roles(module.graph)
        states, copies = states or {}, copies or {}
        early = {*states.values(), *copies.values()}
        sides = _sides(module.graph, num_fwd_outputs, roles, storages, early)
        written = frozenset(
            storages[a.name]
            for n in module.graph.nodes
            for a in mutated_arguments(n)
            if a.name in storages
        )
        return cls(module, num_fwd_outputs, roles, sides, storages, spare, written, states, copies)

    @cached_property
    def named(self) -> dict[str, fx.Node]:
        """All nodes by name."""
        return {n.name: n for n in self.module.graph.nodes}

    @cached_property
    def computed(self) -> frozenset[str]:
        """Storages that ops of the graph make."""
        roles = (Role.OP, Role.ITEM)
        return frozenset(s for s in self.storages.values() if self.roles[s] in roles)

    @property
    def nodes(self) -> list[fx.Node]:
        """All nodes in graph order."""
        return list(self.module.graph.nodes)

    def outputs(self) -> tuple[list[fx.Node], list[fx.Node]]:
        """Nodes that the forward and the backward return; absent gradients are left out."""
        flat = _flat_outputs(self.module.graph)
        cut = self.num_fwd_outputs
        return (
            [n for n in flat[:cut] if isinstance(n, fx.Node)],
            [n for n in flat[cut:] if isinstance(n, fx.Node)],
        )

    def reads(self, node: fx.Node) -> tuple[str, ...]:
        """Storages that a node reads through its arguments, each once, in order of appearance."""
        found = dict.fromkeys(
            self.storages[a.name] for a in leaves(node) if a.name in self.storages
        )
        return tuple(found)

    def reads_late(self, node: fx.Node) -> tuple[str, ...]:
        """Storages that a node reads when it runs in the backward, in order of appearance."""
        return tuple(dict.fromkeys(self.copies.get(name, name) for name in self.reads(node)))

    def makes(self, node: fx.Node) -> tuple[str, ...]:
        """Storages that an op yields, itself or through its items, in order of appearance."""
        group = (node, *self.items(node))
        return tuple(n.name for n in group if self.storages.get(n.name) == n.name)

    def maker(self, node: fx.Node) -> fx.Node:
        """The op that a node is a result of: itself, or the one whose tuple it is taken from."""
        while self.roles[node.name] is Role.ITEM:
            node = node.all_input_nodes[0]
        return node

    def items(self, node: fx.Node) -> Iterator[fx.Node]:
        """Nodes that take an op's tuple apart, nested ones included."""
        for user in node.users:
            if self.roles[user.name] is Role.ITEM:
                yield user
                yield from self.items(user)


def leaves(node: fx.Node) -> list[fx.Node]:
    """Nodes among a node's arguments, in order, with repetitions."""
    return nodes_in((node.args, node.kwargs))


def nodes_in(arguments: Any) -> list[fx.Node]:
    """Nodes among nested arguments, in order, with repetitions."""
    found: list[fx.Node] = []
    fx.map_arg(arguments, lambda a: found.append(a))
    return found


def mutated_arguments(node: fx.Node) -> list[fx.Node]:
    """Arguments whose contents an op overwrites, by its schema."""
    if not isinstance(node.target, OpOverload) or not node.target._schema.is_mutable:
        return []
    found: list[fx.Node] = []
    for index, argument in enumerate(node.target._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        given = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
        found += nodes_in(given)
    return found


def _flat_outputs(graph: fx.Graph) -> list[Any]:
    (output,) = graph.find_nodes(op="output")
    return pytree.arg_tree_leaves(*output.args)


def check_graph(graph: fx.Graph, num_fwd_outputs: int) -> None:
    """Refuse what the pass cannot take; see :meth:`JointGraph.from_module` for the errors."""
    count = len(_flat_outputs(graph))
    if not 0 <= num_fwd_outputs <= count:
        raise GraphError(f"{num_fwd_outputs} forward outputs asked for, the graph has {count}")
    for node in graph.nodes:
        if node.op in ("call_module", "call_method"):
            raise GraphError(
                f"a {node.op} of {node.target!r}; the pass takes graphs of ATen calls, "
                "as AOTAutograd traces them",
                node.name,
            )
        for tensor in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(tensor, torch.Tensor) and tensor.layout is not torch.strided:
                raise GraphError(
                    f"a tensor of layout {tensor.layout} has no storage whose bytes could be told; "
                    "make it dense or keep it out of the compiled region",
                    node.name,
                )
        bare = node.op == "call_function" and "val" not in node.meta
        if bare and (node.users or not impure(node)):
            raise GraphError(
                "no traced value in meta['val']; run the graph through FakeTensorProp first",
                node.name,
            )


def _roles(
    graph: fx.Graph,
) -> tuple[dict[str, Role], dict[str, str], dict[str, tuple[torch.Tensor, ...]]]:
    roles: dict[str, Role] = {}
    storages: dict[str, str] = {}
    spare: dict[str, tuple[torch.Tensor, ...]] = {}
    owner: dict[int, str] = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        base = storages.get(node.all_input_nodes[0].name) if only_views(node) else None
        for tensor in _tensors(value) if base is not None else ():
            owner.setdefault(storage_key(tensor), str(base))
        roles[node.name] = role = _role(node, value, roles, owner)
        if isinstance(value, torch.Tensor) and role is not Role.OUTPUT:
            storages[node.name] = owner.setdefault(storage_key(value), node.name)
        elif role is Role.OP:
            spare[node.name] = _spare(node, value, owner)
    return roles, storages, spare


def _role(node: fx.Node, value: Any, roles: dict[str, Role], owner: dict[int, str]) -> Role:
    if node.op == "placeholder":
        if not isinstance(value, torch.Tensor):
            return Role.SIZE if isinstance(value, torch.SymInt) else Role.CONSTANT
        return Role.TANGENT if "tangents" in str(node.target) else Role.INPUT
    if node.op == "get_attr":
        return Role.INPUT if isinstance(value, torch.Tensor) else Role.CONSTANT
    if node.op == "output":
        return Role.OUTPUT
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return Role.SIZE
    tensors = _tensors(value)
    if mutated_arguments(node) or not tensors:
        return Role.OP
    known = all(storage_key(t) in owner for t in tensors)
    if node.target is operator.getitem:
        source = node.args[0]
        if isinstance(source, fx.Node) and roles[source.name] in (Role.OP, Role.ITEM):
            return Role.ITEM
        return Role.VIEW
    return Role.VIEW if known and not impure(node) else Role.OP


def _spare(node: fx.Node, value: Any, owner: dict[int, str]) -> tuple[torch.Tensor, ...]:
    taken: set[int] = set()
    stack = [node]
    while stack:
        for user in stack.pop().users:
            if user.target is operator.getitem:
                stack.append(user)
                got = user.meta.get("val")
                if isinstance(got, torch.Tensor):
                    taken.add(storage_key(got))
    return tuple(t for t in _tensors(value) if storage_key(t) not in taken | owner.keys())


def _tensors(value: Any) -> list[torch.Tensor]:
    return [t for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def _sides(
    graph: fx.Graph,
    num_fwd_outputs: int,
    roles: dict[str, Role],
    storages: dict[str, str],
    early: set[str],
) -> dict[str, Side]:
    sides: dict[str, Side] = {}
    late = False  # whether the backward has begun; autograd.Functions leave their ops untagged
    for node in graph.nodes:
        tag = node.meta.get("partitioner_tag")
        late = late or (node.op == "call_function" and tag == "is_backward")
        sly = node.op == "call_function" and (_acts(node) or is_custom(node))
        mine = late and tag in (None, "is_backward") and sly
        backward = mine or _from_backward(node, sides, roles)
        sides[node.name] = Side.BACKWARD if backward else Side.EITHER
    written = {
        storages[a.name]
        for n in graph.nodes
        for a in mutated_arguments(n)
        if sides[n.name] is Side.EITHER and a.name in storages
    }

    def reads_old(node: fx.Node) -> bool:
        """Whether an op reads what the forward overwrites: in the backward it would be too late."""
        op = roles[node.name] in (Role.OP, Role.SIZE)
        read = any(storages.get(a.name) in written for a in node.all_input_nodes)
        return op and (read or keeps_input(node))

    roots = [n for n in _flat_outputs(graph)[:num_fwd_outputs] if isinstance(n, fx.Node)]
    sides.update(dict.fromkeys(early, Side.EARLY))
    for node in graph.nodes:
        once = node.op == "call_function" and (_acts(node) or reads_old(node))
        if sides[node.name] is Side.EITHER and (node.op == "placeholder" or once):
            roots.append(node)
    while roots:
        node = roots.pop()
        if sides[node.name] is Side.EITHER:
            sides[node.name] = Side.FORWARD
            roots.extend(node.all_input_nodes)
    return sides


def _acts(node: fx.Node) -> bool:
    """Whether a call must keep its place among others: a draw, a write, an effect, a collective."""
    return impure(node) or communicates(node)


def _from_backward(node: fx.Node, sides: dict[str, Side], roles: dict[str, Role]) -> bool:
    if node.op == "output":
        return True
    if node.op == "placeholder":
        name = str(node.target)
        return "tangents" in name or "bwd_seed" in name or "bwd_base_offset" in name
    tag = node.meta.get("partitioner_tag")
    if tag == "must_be_in_backward":
        return True
    if tag == "must_be_in_forward":
        return False
    if tag == "is_backward" and node.op == "call_function" and _acts(node):
        return True
    return any(sides[a.name] is Side.BACKWARD for a in node.all_input_nodes)
