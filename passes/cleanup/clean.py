"""Dead code, common subexpressions and no-ops of a joint graph of ATen ops.

:func:`clean` copies a module and rewrites the copy's graph by the other functions, which work in
place. Whatever a cleaned graph computes is bit for bit what the graph computed: nothing is
rewritten algebraically, random ops draw in the same order, writes stay where they are.

Before::

    exp = aten.exp(x);  exp_1 = aten.exp(x);  mul = aten.mul.Tensor(exp, exp_1)
    neg = aten.neg(x);  alias = aten.alias(mul);  sin = aten.sin(alias);  return sin

After ``clean``::

    exp = aten.exp(x);  mul = aten.mul.Tensor(exp, exp);  sin = aten.sin(mul);  return sin

An op that is not known here (a higher-order op, a custom op, any other callable) is kept and
taken to write to all its inputs.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.sym_node import METHOD_TO_OPERATOR
from torch.types import py_sym_types

from passes.node_utils import arguments_where, mutated_arguments
from passes.torch_internals import copied

__all__ = ["clean", "drop_no_ops", "drop_unread", "merge_common", "remove_dead"]

aten = torch.ops.aten
_BATCH_NORM_BACKWARD = aten.native_batch_norm_backward.default
_RUNNING, _TRAINING = (3, 4), 7  # argument positions


def clean(module: GraphModule, *rewrites: Callable[[Graph], None]) -> GraphModule:
    """A copy of a module with its graph cleaned; weights are shared.

    Args:
        module: the joint graph; it is not changed.
        rewrites: functions of this module; by default all of them, each once.
    """
    made = copied(module)
    for rewrite in rewrites or (drop_unread, drop_no_ops, merge_common, remove_dead):
        rewrite(made.graph)
    return made


def drop_unread(graph: Graph) -> None:
    """Replace arguments that an op takes but does not read by None, so that nothing is kept for it.

    The backward of a training batch norm is handed the running statistics, which only evaluation
    reads. Without them a few small tensors need not be saved, and the batch norm itself can be
    recomputed: its form without statistics (:mod:`passes.recompute.forms`) does not yield them.
    """
    for node in graph.find_nodes(op="call_function", target=_BATCH_NORM_BACKWARD):
        if node.args[_TRAINING] is True:
            for position in _RUNNING:
                node.update_arg(position, None)


def remove_dead(graph: Graph) -> None:
    """Remove ``call_function`` nodes that nothing reads.

    Kept are placeholders, writes, effects, assertions, unknown ops, ops that bind a symbolic
    size, and random ops: they move the state of the generator.
    """
    for node in reversed(list(graph.nodes)):
        if node.users or node.op != "call_function" or not _traits(node.target).removable:
            continue
        if "unbacked_bindings" not in node.meta and not node.is_impure():
            graph.erase_node(node)


def drop_no_ops(graph: Graph) -> None:
    """Replace an alias, or a view that changes no size or stride, by its input.

    Kept are those that the graph returns, those of a storage that the graph writes to, and those
    whose ``meta["recompute"]`` differs from that of their input.
    """
    storage = _Storage.of(graph)
    for node in list(graph.nodes):
        source = _identical_input(node)
        if source is None or node in storage.returned or storage.made[node] in storage.written:
            continue
        if node.meta.get("recompute") == source.meta.get("recompute"):
            node.replace_all_uses_with(source)
            graph.erase_node(node)


def _identical_input(node: Node) -> Node | None:
    """The input that a node returns unchanged, or None."""
    if node.target in (aten.alias.default, aten.detach.default):
        return node.all_input_nodes[0]
    if node.target in (aten.view.default, aten.reshape.default, aten.expand.default):
        source = node.all_input_nodes[0]
        layout = _layout(node)
        return source if layout is not None and layout == _layout(source) else None
    return None


def _layout(node: Node) -> tuple[object, ...] | None:
    val = node.meta.get("val")
    if not isinstance(val, torch.Tensor) or val.layout is not torch.strided:
        return None
    # As text: comparing symbolic sizes themselves would add guards to the user's program.
    return val.dtype, str(val.shape), str(val.stride()), str(val.storage_offset())


def merge_common(graph: Graph) -> None:
    """Merge nodes that compute the same from the same inputs into the first of them.

    Two nodes stay apart where a merge could change a result, or undo what the user or autograd
    asked for:

    * either belongs to a checkpoint region (``meta["recompute"]``), or the regions
      (``meta["ac_graph_id"]``) or annotations (``meta["custom"]``) differ;
    * one is forward and one backward (``meta["partitioner_tag"]``), since a forward value would
      then live into the backward; a forward view may serve the backward, since it holds nothing;
    * both would be returned, so that two outputs would share one storage;
    * the graph writes to the result of either, or writes in between to what both read;
    * the op is random, mutating, effectful or unknown, or yields uninitialized memory or a size
      that depends on data;
    * it is a constant of more than 512 bytes: filling it again costs little, while one copy for
      all its readers would be held from the first to the last of them.
    """
    storage = _Storage.of(graph)
    writes: Counter[Node] = Counter()  # per storage, how often it has been written so far
    seen: dict[Hashable, list[Node]] = {}

    def key(arg: object) -> Hashable:
        if isinstance(arg, Node):
            return arg, writes[storage.made[arg]]
        if isinstance(arg, list | tuple):
            return tuple(map(key, arg))
        return _constant_key(arg)

    for node in list(graph.nodes):
        writes.update(storage.made[target] for target in _written_by(node))
        if not _is_mergeable(node, storage):
            continue
        named = tuple((name, key(node.kwargs[name])) for name in sorted(node.kwargs))
        twins = seen.setdefault((node.target, key(node.args), named), [])
        twin = next((t for t in twins if _may_serve(t, node, storage)), None)
        if twin is None:
            twins.append(node)
            continue
        node.replace_all_uses_with(twin)
        storage.replace(node, twin)
        graph.erase_node(node)


def _is_mergeable(node: Node, storage: _Storage) -> bool:
    if node.op != "call_function" or "recompute" in node.meta:
        return False
    traits = _traits(node.target)
    if not traits.mergeable or (traits.constant and not _is_small(node)):
        return False
    return traits.view or node not in storage.written


def _is_small(node: Node) -> bool:
    val = node.meta.get("val")
    if not isinstance(val, torch.Tensor):
        return False
    numel = val.numel()
    return type(numel) is int and numel * val.dtype.itemsize <= _GRANULE


def _may_serve(twin: Node, node: Node, storage: _Storage) -> bool:
    """Whether an earlier node, equal as an expression, may take the place of a later one."""
    view = _traits(node.target).view
    for name in ("ac_graph_id", "custom"):
        if twin.meta.get(name) != node.meta.get(name):
            return False
    sides = twin.meta.get("partitioner_tag"), node.meta.get("partitioner_tag")
    if sides[0] != sides[1] and not (view and sides == ("is_forward", "is_backward")):
        return False
    if view:
        return not (twin in storage.returned and node in storage.returned)
    return not (twin in storage.escaping and node in storage.escaping)


_PLAIN = (bool, int, str, torch.dtype, torch.device, torch.layout, torch.memory_format)


def _constant_key(arg: object) -> Hashable:
    """A key that is equal only for arguments that mean the same to an op."""
    if isinstance(arg, float):
        return float, arg.hex()  # tells 0.0 from -0.0, which are equal
    if isinstance(arg, complex):
        return complex, arg.real.hex(), arg.imag.hex()
    if isinstance(arg, py_sym_types):
        return type(arg), str(arg)  # the hash of a symbol would add a guard
    if isinstance(arg, slice):
        return slice, *map(_constant_key, (arg.start, arg.stop, arg.step))
    if arg is None or isinstance(arg, _PLAIN):
        return type(arg), arg  # the type, since 1 == True == 1.0
    return object()  # equal to nothing


@dataclass(slots=True)
class _Storage:
    """Which node made the storage of each node, and what happens to the storages.

    Attributes:
        made: for each node the node that made its storage; itself unless it is a view or an item.
        written: makers of storages that the graph writes to.
        returned: nodes that the graph returns.
        escaping: makers of storages that the graph returns, itself or a view of them.
    """

    made: dict[Node, Node] = field(default_factory=dict)
    written: set[Node] = field(default_factory=set)
    returned: set[Node] = field(default_factory=set)
    escaping: set[Node] = field(default_factory=set)

    @classmethod
    def of(cls, graph: Graph) -> _Storage:
        self = cls()
        for node in graph.nodes:
            source = _source_of(node)
            self.made[node] = node if source is None else self.made[source]
            self.written.update(self.made[target] for target in _written_by(node))
            if node.op == "output":
                self.returned.update(node.all_input_nodes)
                self.escaping.update(self.made[source] for source in node.all_input_nodes)
        return self

    def replace(self, node: Node, twin: Node) -> None:
        for nodes in (self.returned, self.escaping):
            if node in nodes:
                nodes.add(twin)


@dataclass(frozen=True, slots=True)
class _Traits:
    """What is known of a target."""

    removable: bool = False
    mergeable: bool = False
    constant: bool = False  # the contents depend on no tensor
    view: bool = False  # holds no memory of its own


_ON_SIZES = {*METHOD_TO_OPERATOR.values(), torch.sym_int, torch.sym_sum}  # symbolic ones
_GRANULE = 512  # bytes; the least that the CUDA allocator hands out
_CONSTANTS = ("full", "zeros", "ones", "new_full", "new_zeros", "new_ones")
_UNINITIALIZED = ("empty", "new_empty", "_empty")
_EFFECTS = ("_assert", "_functional_assert", "_functional_sym", "_make", "_sink", "sym_constrain")
# A view or a copy, as the strides have it; whoever returns one can't tell whether it is shared.
_MAYBE_COPIES = {"reshape", "reshape_as", "contiguous", "to", "flatten", "ravel", "pin_memory"}
_UNMERGEABLE_TAGS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


@cache
def _traits(target: Any) -> _Traits:
    if target is operator.getitem:
        return _Traits(True, True, view=True)
    if isinstance(target, torch._ops.OpOverload):
        return _op_traits(target)
    if target in _ON_SIZES:
        return _Traits(True, True)
    return _Traits()


def _op_traits(op: torch._ops.OpOverload[Any, Any]) -> _Traits:
    schema, name = op._schema, op._schema.name.partition("::")[2]
    pure = (
        op.namespace in ("aten", "prims")
        and not schema.is_mutable
        and torch.Tag.nondeterministic_seeded not in op.tags
        and bool(schema.returns)
        and not name.startswith(_EFFECTS)
    )
    mergeable = (
        pure
        and not name.startswith(_UNINITIALIZED)
        and name not in _MAYBE_COPIES
        and _UNMERGEABLE_TAGS.isdisjoint(op.tags)
    )
    shares = any(result.alias_info is not None for result in schema.returns)
    shares = shares or op is aten._unsafe_view.default
    view = shares and name not in _MAYBE_COPIES and not schema.is_mutable
    tensors = any("Tensor" in str(a.type) for a in schema.arguments)
    constant = not tensors or name.startswith(_CONSTANTS)
    return _Traits(pure, mergeable, constant, view)


def _written_by(node: Node) -> list[Node]:
    if node.op != "call_function":
        return node.all_input_nodes if node.op.startswith("call") else []
    known = isinstance(node.target, torch._ops.OpOverload) or _traits(node.target).removable
    return mutated_arguments(node) if known else node.all_input_nodes


def _source_of(node: Node) -> Node | None:
    """The argument whose storage a call's result shares, by the schema of its op."""
    if node.target in (operator.getitem, aten._unsafe_view.default):  # the latter's schema hides it
        return node.all_input_nodes[0]
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    if all(result.alias_info is None for result in node.target._schema.returns):
        return None
    return next(iter(arguments_where(node, lambda a: a.alias_info is not None)), None)
