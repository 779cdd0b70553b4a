"""Split a joint graph into forward and backward along a schedule.

First a new joint graph is written whose backward is a literal replay of the schedule, with
recomputed ops as nodes of their own, so that every read already goes to the copy it will really
read. Only then torch's own extraction cuts that graph at the saved nodes; it knows the order of
outputs and inputs that AOTAutograd expects, and nothing it drops is still needed.

Rules of the replay:

* the forward keeps its order; an op hoisted into it stands right after its last input;
* in the backward a use reads the latest copy of a storage made before it, or else the saved one;
* views are emitted next to their first use after each copy, never saved apart from their base;
* an op's tuple is taken apart at once, or it would keep all its outputs alive;
* symbolic sizes that the forward can compute are saved as sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from torch import fx

from passes.analysis.joint import JointGraph, Role
from passes.errors import RewriteError
from passes.node_utils import flat_outputs, leaves
from passes.phases import Phase
from passes.recompute.forms import Form, rerun_form
from passes.torch_internals import extract_modules, graph_module, is_opaque_node

__all__ = ["Split", "split"]


@dataclass(frozen=True)
class Split:
    """Two halves of a training step.

    Attributes:
        forward: its outputs are the user's, then what the backward needs.
        backward: its inputs are what the forward hands on, then the tangents.
        saved: names of the nodes that the forward hands to the backward, sizes not included.
        recomputed: for each node of the backward that is a further run of an op, that op's name.
    """

    forward: fx.GraphModule
    backward: fx.GraphModule
    saved: tuple[str, ...]
    recomputed: dict[str, str]


def split(joint: JointGraph, schedule: Sequence[str], forward: Sequence[str]) -> Split:
    """Split a joint graph along a schedule.

    Args:
        joint: the joint graph.
        schedule: names of ops in the order in which the backward runs them; an op that is not a
            backward op may stand several times.
        forward: names of ops in the order in which the forward runs them.

    Raises:
        RewriteError: for a name that is no op of this graph, a backward op that is missing or out
            of order, or a value that is read before it exists.
    """
    _check(joint, schedule, forward)
    state = _Replay(joint)
    _emit_inputs(state)
    _emit_forward(state, [joint.named[name] for name in forward])
    for name in schedule:
        if joint.roles[name] is Role.OP:
            state.run(joint.named[name])
    _emit_output(state)
    return state.cut()


@dataclass
class _Replay:
    """A joint graph under construction. ``forward`` and ``backward`` map old nodes to new ones."""

    joint: JointGraph
    graph: fx.Graph = field(default_factory=fx.Graph)
    forward: dict[str, fx.Node] = field(default_factory=dict)
    backward: dict[str, fx.Node] = field(default_factory=dict)
    version: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    saved: dict[str, fx.Node] = field(default_factory=dict)
    sizes: dict[str, fx.Node] = field(default_factory=dict)
    objects: dict[str, fx.Node] = field(default_factory=dict)
    recomputed: dict[str, str] = field(default_factory=dict)

    def cut(self) -> Split:
        """Cut the finished joint graph into its halves."""
        forward, backward = extract_modules(
            graph_module(self.joint.module, self.graph),
            tuple(self.saved.values()),
            tuple(self.sizes.values()),
            tuple(self.objects.values()),
            self.joint.num_fwd_outputs,
        )
        # What no op of the backward reads in the end, the extraction leaves out.
        names = {n.name for n in backward.graph.nodes}
        again = {new: old for new, old in self.recomputed.items() if new in names}
        taken = [n.name for n in backward.graph.find_nodes(op="placeholder")]
        saved = tuple(name for name in taken if name in self.saved)
        return Split(forward, backward, saved, again)

    # Emission. A node's half is pinned in the copy's own meta, so that the extraction neither runs
    # a random op of the forward again in the backward nor drags a recompute into the forward. What
    # torch's partitioner would read of "recompute" there has been obeyed by the rules.

    def emit_forward(self, node: fx.Node) -> None:
        """Emit a node into the forward."""
        new = self.graph.node_copy(node, lambda a: self.forward[a.name])
        new.meta.pop("recompute", None)
        if self.joint.roles[node.name] is not Role.SIZE:
            new.meta["partitioner_tag"] = "must_be_in_forward"
        self.forward[node.name] = new

    def emit_backward(self, node: fx.Node, form: Form | None = None) -> None:
        """Emit a node into the backward; one that ran before gets a name of its own."""
        again = self.has_made(node.name)
        form = form or Form(node.target, node.args, kwargs=node.kwargs)
        args, kwargs = fx.map_arg((form.args, dict(form.kwargs)), self.read)
        name = f"{node.name}_again" if again else node.name
        new = self.graph.create_node(node.op, form.target, args, kwargs, name, node.type)
        new.meta = {**node.meta, "partitioner_tag": "must_be_in_backward"}
        new.meta.pop("recompute", None)
        if form.results is not None:
            new.meta["val"] = node.meta["val"][: form.results]
        if again and self.joint.roles[node.name] is Role.OP:
            self.recomputed[new.name] = node.name
        self.backward[node.name] = new

    def run(self, node: fx.Node) -> None:
        """Emit one op of the schedule and take its tuple apart."""
        form = rerun_form(self.joint, node) if node.name in self.forward else None
        self.emit_backward(node, form)
        for made in self.joint.makes(node):
            self.version[made] = self.version.get(made, 0) + 1
        for item in self.joint.items(node):
            index: Any = item.args[1]
            if form is None or form.results is None or index < form.results:
                self.emit_backward(item)
        for size in _sizes_after(self.joint, node, self.has_made):
            self.read(size)

    def has_made(self, name: str) -> bool:
        """Whether a node stands in either half already."""
        return name in self.forward or name in self.backward

    def read(self, node: fx.Node) -> fx.Node:
        """The node of the new backward that stands for a node read by it."""
        role, side = self.joint.roles[node.name], self.joint.phases[node.name]
        if role is Role.SIZE and side is not Phase.BACKWARD:
            if node.name not in self.forward:  # a size of an op that only the backward runs
                return self._view(node)
            return self.sizes.setdefault(node.name, self.forward[node.name])
        if node.op in ("placeholder", "get_attr"):
            return self._placeholder(node)
        if role in (Role.VIEW, Role.SIZE):
            return self._view(node)
        if node.name in self.backward:
            return self.backward[node.name]
        if role is Role.ITEM or role is Role.OP:
            return self._save(node.name)
        raise RewriteError(f"the backward reads a {role} that no op has made", node.name)

    def _placeholder(self, node: fx.Node) -> fx.Node:
        copied = self.joint.copies.get(self.joint.storages.get(node.name, ""))
        if copied is not None:
            return self._save(copied)
        new = self.forward[node.name]
        mine = self.joint.phases[node.name] is not Phase.BACKWARD and node.op == "placeholder"
        if mine and self.joint.roles[node.name] is Role.INPUT:
            self.saved[node.name] = new
        elif mine and is_opaque_node(node):
            self.objects[node.name] = new  # the mesh of a DTensor, part of its gradient
        return new

    def _save(self, name: str) -> fx.Node:
        if name not in self.forward:
            raise RewriteError(
                "the schedule reads it before any op has made it; "
                "the plan belongs to another graph",
                name,
            )
        return self.saved.setdefault(name, self.forward[name])

    def _view(self, node: fx.Node) -> fx.Node:
        own = self.joint.storages.get(node.name)
        read = (own,) if own is not None else self.joint.reads(node)
        stamp = sum(self.version.get(s, 0) for s in read)
        stale = self.seen.get(node.name) != stamp and self.joint.roles[node.name] is not Role.SIZE
        if node.name not in self.backward or stale:
            self.emit_backward(node)
            self.seen[node.name] = stamp
        return self.backward[node.name]


def _check(joint: JointGraph, schedule: Sequence[str], forward: Sequence[str]) -> None:
    for name in (*schedule, *forward):
        if name not in joint.named or joint.roles[name] not in (Role.OP, Role.OUTPUT):
            raise RewriteError("the plan names it, but this graph has no such op", name)
    _check_order(joint, schedule, Phase.BACKWARD, "the schedule")
    _check_order(joint, forward, Phase.FORWARD, "the forward")
    for name, count in Counter(forward).items():
        if joint.phases[name] is Phase.BACKWARD:
            raise RewriteError("the forward names it, but it needs the tangents", name)
        if count > 1:
            raise RewriteError("the forward may run it once only", name)


def _check_order(joint: JointGraph, names: Sequence[str], phase: Phase, who: str) -> None:
    ops = (n.name for n in joint.nodes if joint.roles[n.name] in (Role.OP, Role.OUTPUT))
    expected = [name for name in ops if joint.phases[name] is phase]
    given = [name for name in names if joint.phases[name] is phase]
    for mine, theirs in zip_longest(expected, given):
        if mine != theirs:
            raise RewriteError(
                f"{who} must run every {phase} op of the graph once, in the graph's order",
                mine or theirs,
            )


def _emit_inputs(state: _Replay) -> None:
    for kind in ("placeholder", "get_attr"):
        for node in state.joint.module.graph.find_nodes(op=kind):
            state.forward[node.name] = state.graph.node_copy(node)


def _emit_forward(state: _Replay, ops: list[fx.Node]) -> None:
    """The forward's ops in order, views before their first use, the rest at the end.

    Sizes are read as soon as they can be: read later, they would keep a tensor alive till then.
    """
    joint = state.joint

    def need(node: fx.Node) -> None:
        stack = [node]
        while stack:
            top = stack[-1]
            missing = [a for a in leaves(top) if a.name not in state.forward]
            for node in missing:
                if joint.roles[node.name] in (Role.OP, Role.ITEM):
                    raise RewriteError("the forward reads it before any op has made it", node.name)
            stack.extend(missing)
            if not missing:
                stack.pop()
                if top.name not in state.forward:
                    state.emit_forward(top)

    for op in ops:
        need(op)
        for item in joint.items(op):
            state.emit_forward(item)
        for size in _sizes_after(joint, op, state.forward.__contains__):
            need(size)
    for node in joint.nodes:
        glue = joint.roles[node.name] in (Role.VIEW, Role.SIZE)
        wanted = joint.phases[node.name] is Phase.FORWARD or joint.roles[node.name] is Role.SIZE
        mine = glue and wanted and joint.phases[node.name] is not Phase.BACKWARD
        if mine and all(a.name in state.forward for a in leaves(node)):
            need(node)


def _sizes_after(joint: JointGraph, op: fx.Node, made: Callable[[str], bool]) -> Iterator[fx.Node]:
    """Sizes read off what an op has just made, if all else that they read is made too."""

    def ready(node: fx.Node) -> bool:
        if made(node.name):
            return True
        glue = joint.roles[node.name] in (Role.VIEW, Role.SIZE)
        return glue and all(ready(a) for a in leaves(node))

    stack, seen = [op], {op}
    while stack:
        for user in stack.pop().users:
            role = joint.roles[user.name]
            if role in (Role.VIEW, Role.ITEM, Role.SIZE) and user not in seen:
                seen.add(user)
                stack.append(user)
                if role is Role.SIZE and not made(user.name) and ready(user):
                    yield user


def _emit_output(state: _Replay) -> None:
    graph, cut = state.joint.module.graph, state.joint.num_fwd_outputs
    flat = flat_outputs(graph)
    forward = fx.map_arg(flat[:cut], lambda a: state.forward[a.name])
    new = state.graph.output((*forward, *fx.map_arg(flat[cut:], state.read)))
    new.meta = dict(graph.output_node().meta)
