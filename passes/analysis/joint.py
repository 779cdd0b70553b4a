"""The joint graph: the one door through which graphs enter the pass.

AOTAutograd traces forward and backward of a training step into one graph of ATen ops. A
:class:`JointGraph` is that graph with everything the later stages ask about it settled once:

* the *role* of every node: an input, a tangent, an op that does work, an item taken from an op's
  tuple, a view, a symbolic size, a constant, the output;
* the *phase* of every node: ``forward`` (the forward's outputs or effects need it), ``backward``
  (it depends on a tangent, or its effect belongs to the backward), ``deferrable`` (it
  depends on the inputs alone but only the backward reads it), or ``replay_support`` (it serves
  further runs of others, see :mod:`passes.recompute.replay_support`);
* the *storage* of every node: views of one buffer are one storage, named after the node that
  yields the buffer. Identity is taken from the traced fake tensors, so that ops like
  ``_unsafe_view``, whose schema promises a fresh result, are seen for what they do; an op that can
  do nothing but view is a view even where a compiler's own pass traced it apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import fx

from passes.analysis.phases import phases_of
from passes.analysis.roles import Role, roles_of
from passes.errors import GraphError
from passes.node_utils import flat_outputs, leaves, mutated_arguments, nodes_in, tensors_in
from passes.phases import Phase
from passes.torch_internals import impure

__all__ = ["JointGraph", "Role"]


@dataclass(frozen=True)
class JointGraph:
    """A joint graph with roles, phases and storages of its nodes; all mappings go by node name.

    Attributes:
        module: the graph module; not to be changed.
        num_fwd_outputs: how many of its outputs are the forward's.
        roles: the role of every node.
        phases: the phase of every node.
        storages: the storage that a node's tensor lives in, by the name of the node that yields
            it; nodes without a tensor of their own (tuples, sizes) are not in it.
        spare: for multi-output ops, the outputs that nothing reads.
        written: storages that the graph writes to after they were made.
        states: for ops that can be replayed the node that takes the generator's state before.
        copies: for inputs that the forward overwrites the node that copies them before.
    """

    module: fx.GraphModule
    num_fwd_outputs: int
    roles: dict[str, Role]
    phases: dict[str, Phase]
    storages: dict[str, str]
    spare: dict[str, tuple[torch.Tensor, ...]]
    written: frozenset[str]
    states: Mapping[str, str] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_module(cls, module: fx.GraphModule, num_fwd_outputs: int) -> JointGraph:
        """Read a joint graph.

        Args:
            module: the joint graph as AOTAutograd hands it to a partitioner.
            num_fwd_outputs: how many of its outputs belong to the forward.

        Raises:
            GraphError: for a node that is no ATen-level call, lacks its traced value, or for a
                number of outputs that the graph does not have.
        """
        _check(module.graph, num_fwd_outputs)
        roles, storages, spare = roles_of(module.graph)
        phases = phases_of(module.graph, num_fwd_outputs, roles, storages)
        changed = (a.name for n in module.graph.nodes for a in mutated_arguments(n))
        written = frozenset(storages[name] for name in changed if name in storages)
        return cls(module, num_fwd_outputs, roles, phases, storages, spare, written)

    def with_support(
        self, module: fx.GraphModule, states: Mapping[str, str], copies: Mapping[str, str]
    ) -> JointGraph:
        """This graph with replay support: ops that make a storage and that nothing reads yet.

        Args:
            module: a copy of this graph's module that has these ops.
            states: see the attributes.
            copies: see the attributes.
        """
        support = (*states.values(), *copies.values())
        return replace(
            self,
            module=module,
            roles=self.roles | dict.fromkeys(support, Role.OP),
            phases=self.phases | dict.fromkeys(support, Phase.REPLAY_SUPPORT),
            storages=self.storages | {name: name for name in support},
            states=states,
            copies=copies,
        )

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
        flat, cut = flat_outputs(self.module.graph), self.num_fwd_outputs
        forward, backward = (nodes_in(values) for values in (flat[:cut], flat[cut:]))
        return forward, backward

    def reads(self, node: fx.Node) -> tuple[str, ...]:
        """Storages that a node reads through its arguments, each once, in order of appearance."""
        return self.storages_of(leaves(node))

    def storages_of(self, nodes: Iterable[fx.Node], *, late: bool = False) -> tuple[str, ...]:
        """Storages that nodes' tensors live in, each once, in order of appearance.

        Args:
            nodes: nodes; those without a tensor of their own are passed over.
            late: as the backward reads them: copies in place of overwritten inputs.
        """
        found = (self.storages[n.name] for n in nodes if n.name in self.storages)
        return tuple(dict.fromkeys(self.copies.get(s, s) if late else s for s in found))

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

    def looks(self, node: fx.Node) -> Iterator[fx.Node]:
        """A node, and all views and items of its result."""
        stack, seen = [node], {node}
        while stack:
            at = stack.pop()
            yield at
            users = [u for u in at.users if self.roles[u.name] in (Role.VIEW, Role.ITEM)]
            stack += [u for u in users if u not in seen]
            seen.update(users)


def _check(graph: fx.Graph, num_fwd_outputs: int) -> None:
    """Refuse what the pass cannot take; see :meth:`JointGraph.from_module` for the errors."""
    count = len(flat_outputs(graph))
    if not 0 <= num_fwd_outputs <= count:
        raise GraphError(f"{num_fwd_outputs} forward outputs asked for, the graph has {count}")
    for node in graph.nodes:
        if node.op in ("call_module", "call_method"):
            raise GraphError(
                f"a {node.op} of {node.target!r}; the pass takes graphs of ATen calls, "
                "as AOTAutograd traces them",
                node.name,
            )
        for tensor in tensors_in(node.meta.get("val")):
            if tensor.layout is not torch.strided:
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
